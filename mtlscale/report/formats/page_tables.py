"""The tables of a leaderboard as pages draw them: the compact one first, then everything that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mtlscale.report.cells.sheet import PAGE, Column, Sheet
from mtlscale.report.tables.columns import columns
from mtlscale.report.tables.sheets import names_of
from mtlscale.report.tables.table import Table

MOST_COLUMNS = 9  # of a table; more are split over several tables, which fit a window and paper
_MAIN = ("delta_i", "average", "mean_rank", "hypervolume", "verdict", "runs", "total_seconds", "seconds", "parameters")
_MOST_TASKS = 4  # tasks with a column in the compact table, where their metrics have no mean


def main_sheet(table: Table, page: int = PAGE) -> Sheet:
    """Build the table that most people look for: how good methods are, whether that is real, and what it costs."""
    all_columns = columns(table)
    by_name = {column.name: column for column in all_columns}
    names = [name for name in (*["delta_main"] * (table.order == "delta_main"), *_MAIN) if name in by_name]
    if "total_seconds" in names:
        names.remove("seconds")

    metric = next(iter(table.main_metrics.values()), "")
    headers = {"average": f"{table.split} {metric}", "total_seconds": "seconds", "parameters": "parameters"}
    headers["seconds"] = "seconds"
    shown = [replace(by_name[name], header=headers.get(name, by_name[name].header)) for name in names]

    tasks = [column for column in all_columns if column.block == "tasks"]
    if "average" not in names and len(tasks) <= _MOST_TASKS:
        position = names.index("delta_i") + 1 if "delta_i" in names else 0
        shown[position:position] = tasks
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
