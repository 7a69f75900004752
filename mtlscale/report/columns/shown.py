"""The columns of a table as every format shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mtlscale.report.cells.number_format import EMPTY
from mtlscale.report.cells.sheet import Column
from mtlscale.report.columns.registry import families
from mtlscale.report.tables.table import Table


def columns(table: Table) -> list[Column]:
    """Return every column that has something to show, in order: quality, tasks, cost."""
    drawn = sorted((pair for entry in families(table.plugins) for pair in entry.drawn(table)), key=lambda pair: pair[0])
    shown = [column for _, column in drawn if any(text != EMPTY for text in column.texts)]
    return _coloured(table, shown)


def _coloured(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Mark in the columns of measures the rows that the verdict's test finds better and worse in them."""
    signs = table.signs([column.name for column in columns if column.tested], table.reference)
    comparable = not table.incomparable
    coloured = []
    for column in columns:
        column_signs = signs[column.name] if column.tested else [0] * len(column.cells)
        cells = [
            cell._replace(mark=f"{cell.mark if comparable else ''} {('', 'gain', 'loss')[sign]}".strip())
            for cell, sign in zip(column.cells, column_signs, strict=True)
        ]
        coloured.append(replace(column, cells=cells, sorts=column.name == table.order))
    return coloured
