"""The tables of a leaderboard with the columns that a user chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mtlscale.config import UserError, nearest
from mtlscale.report.cells.sheet import Column, Sheet
from mtlscale.report.columns.shown import columns
from mtlscale.report.sheets.dataset import caption, names_of
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

TASKS = "tasks"  # stands for the columns of all tasks


def chosen(tables: Mapping[str, Table], names: Sequence[str]) -> list[Sheet]:
    """Return one table for each data set, with these columns in this order.

    Args:
        tables: The tables by data set.
        names: Headers such as `Δ %`, names such as `delta_i`, or `tasks` for those of all tasks.

    Raises:
        UserError: If no table has a column of that name.
    """
    available = {dataset: columns(table) for dataset, table in tables.items()}
    known = list(dict.fromkeys(column.header for shown in available.values() for column in shown))
    for name in names:
        if not any(_named(name, shown) for shown in available.values()):
            raise UserError(f"--columns {name}: no table has it; {nearest(name, [*known, TASKS])}")

    sheets = []
    for dataset, table in tables.items():
        picked = [column for name in names for column in _named(name, available[dataset])]
        if picked:
            unique = list({column.header: column for column in picked}.values())
            sheets.append(
                Sheet(
                    title=dataset,
                    key=dataset,
                    caption=caption(table),
                    columns=[names_of(table), *unique],
                    text=takeaway(table),
                    legend=legend(table),
                )
            )
    return sheets


def _named(name: str, available: Sequence[Column]) -> list[Column]:
    """Return the columns that a name means; a header counts without its unit and its interval, too."""
    wanted = name.strip().casefold()
    if wanted == TASKS:
        return [column for column in available if column.block == "tasks"]
    exact = [column for column in available if wanted in (column.header.casefold(), column.name.casefold())]
    return exact or [column for column in available if wanted == _short(column.header)]


def _short(header: str) -> str:
    return header.casefold().partition(" ±")[0].removesuffix(" %")
