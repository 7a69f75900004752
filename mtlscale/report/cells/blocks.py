"""The columns of a table by blocks, quality, tasks and cost, as formats arrange them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from mtlscale.report.cells.sheet import Block, Column, Sheet

MOST_TASKS = 5  # tasks beside the columns of quality; more go to a table of their own
MOST_COLUMNS = 9  # of a table of a page; more are split over several tables, which fit a window and paper


def by_block(columns: Sequence[Column]) -> list[list[Column]]:
    """Return the columns of quality, tasks and cost."""
    return [[column for column in columns if column.block == block] for block in get_args(Block)]


def arranged(sheet: Sheet, *, details: bool = True) -> list[Sheet]:
    """Return a table as it is, or by its blocks: quality, beside it few tasks or below it many, and cost.

    Without `details` they lack the columns that few readers need.
    """
    if not sheet.blocks:
        return [sheet]
    names, *fields = sheet.columns
    quality, tasks, cost = by_block([column for column in fields if details or not column.detail])
    if len(tasks) <= MOST_TASKS:
        quality, tasks = [*tasks, *quality], []

    name = sheet.key
    parts = (
        (quality, name, sheet.caption, sheet.text, sheet.legend),
        (tasks, f"{name} tasks", f"Each task of {name}", f"{name}, by task.", ""),
        (cost, f"{name} cost", f"Cost on {name}", f"{name}: what the methods cost.", ""),
    )
    return [
        Sheet(columns=[names, *block], key=key, caption=caption, text=text, legend=legend)
        for block, key, caption, text, legend in parts
        if block
    ]


def split(sheet: Sheet, block: Sequence[Column], caption: str) -> list[Sheet]:
    """Split a block of a table's columns into tables with about as many columns each."""
    count = -(-len(block) // MOST_COLUMNS)
    size = -(-len(block) // max(1, count))
    parts = []
    for number in range(count):
        title = caption if count == 1 else f"{caption} ({number + 1} of {count})"
        columns = [sheet.columns[0], *block[number * size : (number + 1) * size]]
        parts.append(Sheet(columns=columns, title=title, label=f"{sheet.key}: {title}", page=sheet.page))
    return parts


def with_texts(column: Column, texts: Sequence[str]) -> Column:
    """Return a column with other texts in its cells."""
    cells = [cell._replace(text=text) for cell, text in zip(column.cells, texts, strict=True)]
    return replace(column, cells=cells)
