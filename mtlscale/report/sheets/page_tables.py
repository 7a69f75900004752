"""The tables of a leaderboard as pages draw them: the compact one first, then everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mtlscale.report.cells.sheet import PAGE, Column, Sheet
from mtlscale.report.columns.registry import definitions
from mtlscale.report.columns.shown import columns
from mtlscale.report.sheets.dataset import names_of
from mtlscale.report.tables.table import Table

MOST_COLUMNS = 9  # of a table; more are split over several tables, which fit a window and paper
_MOST_TASKS = 4  # tasks with a column in the compact table, where their metrics have no mean


def main_sheet(table: Table, page: int = PAGE) -> Sheet:
    """Build the table that most people look for: how good methods are, whether that is real, and what it costs."""
    all_columns, known = columns(table), definitions(table.plugins)
    placed = []
    for column in all_columns:
        one = known.get(column.name)
        if one is not None and one.compact is not None and (one.compact_if is None or one.compact_if(table)):
            title = one.compact_title(table) if callable(one.compact_title) else one.compact_title
            placed.append((one.compact, replace(column, header=title or column.header)))

    tasks = [column for column in all_columns if column.block == "tasks"]
    of_average = known["average"].compact or 0
    if of_average not in [place for place, _ in placed] and len(tasks) <= _MOST_TASKS:
        placed += [(of_average, column) for column in tasks]
    shown = [column for _, column in sorted(placed, key=lambda pair: pair[0])]
    return Sheet(columns=[names_of(table), *shown], label=f"{table.dataset}: the methods compared", page=page)


def split_sheets(table: Table, block: Sequence[Column], caption: str, page: int = PAGE) -> list[Sheet]:
    """Split a block of columns into tables with about as many columns each."""
    count = -(-len(block) // MOST_COLUMNS)
    size = -(-len(block) // max(1, count))
    sheets = []
    for number in range(count):
        title = caption if count == 1 else f"{caption} ({number + 1} of {count})"
        part = [names_of(table), *block[number * size : (number + 1) * size]]
        sheets.append(Sheet(columns=part, title=title, label=f"{table.dataset}: {title}", page=page))
    return sheets
