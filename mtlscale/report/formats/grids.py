"""The tables of a leaderboard as pages draw them: the compact one first, then everything that was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from mtlscale.report.formats import layout
from mtlscale.report.formats.number_format import EMPTY
from mtlscale.report.formats.pages import MOST_COLUMNS, PAGE, ColumnHeader, Grid, TableCell, TableRow, is_number
from mtlscale.report.stats.statistics import BETTER, FEW, SAME, WORSE
from mtlscale.report.tables.table import Table

_PILLS = {BETTER: "better", WORSE: "worse", SAME: "same", FEW: "few"}
_METHOD = "as the experiment names it"
_MAIN = ("delta_i", "average", "mean_rank", "verdict", "runs", "total_seconds", "seconds", "parameters")
_MOST_TASKS = 4  # tasks with a column in the compact table, where their metrics have no mean


def main_grid(table: Table, columns: Sequence[layout.LeaderboardColumn], page: int = PAGE) -> Grid:
    """Build the table that most people look for: how good methods are, whether that is real, and what it costs."""
    by_name = {column.name: column for column in columns if column.name}
    candidates = ("delta_main", *_MAIN) if table.order == "delta_main" else _MAIN

    names = [name for name in candidates if name in by_name]
    if "total_seconds" in names:
        names.remove("seconds")

    tasks = [column for column in columns if column.block == "tasks"]
    metric = next(iter(table.main_metrics.values()), "")

    headers = {"average": f"{table.split} {metric}", "total_seconds": "seconds", "seconds": "seconds"}
    headers["parameters"] = "parameters"

    shown_columns = [replace(by_name[name], header=headers.get(name, by_name[name].header)) for name in names]
    if "average" not in names and len(tasks) <= _MOST_TASKS:
        position = names.index("delta_i") + 1 if "delta_i" in names else 0
        shown_columns[position:position] = tasks

    return _grid(table, shown_columns, "", f"{table.dataset}: the methods compared", page)


def grids(table: Table, block: Sequence[layout.LeaderboardColumn], caption: str, page: int = PAGE) -> list[Grid]:
    """Split a block of columns into tables with about as many columns each."""
    count = -(-len(block) // MOST_COLUMNS)
    parts = [block[start : start + -(-len(block) // count)] for start in range(0, len(block), -(-len(block) // count))]
    return [
        _grid(table, part, title, f"{table.dataset}: {title}", page)
        for number, part in enumerate(parts, 1)
        for title in [caption if count == 1 else f"{caption} ({number} of {count})"]
    ]


def column_grid(
    names: Sequence[str],
    columns: Iterable[layout.LeaderboardColumn],
    label: str,
    roles: dict[str, str],
    page: int = PAGE,
) -> Grid:
    """Build a table of these rows with the texts of the columns."""
    columns = list(columns)
    heads = [ColumnHeader("method", _METHOD, number=False)]
    heads += [
        ColumnHeader(column.header, column.help, best_first(column), number=_is_number(column)) for column in columns
    ]

    rows = [
        TableRow(name, name, roles.get(name, ""), tuple(_cell(column, index) for column in columns))
        for index, name in enumerate(names)
    ]

    return Grid("", label, tuple(heads), tuple(rows), page=page)


def _grid(table: Table, columns: Sequence[layout.LeaderboardColumn], caption: str, label: str, page: int) -> Grid:
    heads = [ColumnHeader("method", _METHOD, number=False)]
    for column in columns:
        current_order = best_first(column) if column.name == table.order else ""
        heads.append(ColumnHeader(column.header, column.help, best_first(column), current_order, _is_number(column)))

    rows = [
        TableRow(
            str(method),
            table.name(method),
            {table.baseline: "baseline", table.reference: "reference"}.get(method, "") if method else "",
            tuple(_cell(column, index) for column in columns),
        )
        for index, method in enumerate(table.rows.index)
    ]

    return Grid(caption, label, tuple(heads), tuple(rows), page=page)


def best_first(column: layout.LeaderboardColumn) -> str:
    """Return the order that shows the best first.

    It follows the direction of the column where it has one, else the rows that it calls best.
    """
    higher = column.higher
    if higher is None and column.best:
        finite_keys = [key for key in column.keys if not np.isnan(key)]
        higher = column.keys[min(column.best)] == max(finite_keys, default=0.0)
    return "descending" if higher else "ascending"


def _is_number(column: layout.LeaderboardColumn) -> bool:
    return sum(is_number(text) for text in column.texts) * 2 >= sum(text != EMPTY for text in column.texts)


def _cell(column: layout.LeaderboardColumn, index: int) -> TableCell:
    text, key = column.texts[index], column.keys[index]
    marks = {"best": column.best, "gain": column.gains, "loss": column.losses}
    kind = " ".join(mark for mark, marked in marks.items() if index in marked)
    return TableCell(text, "" if np.isnan(key) else f"{key:.10g}", kind, _PILLS.get(text, ""))
