"""Tables in a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from mtlscale.report.formats.grid import Field, Grid
from mtlscale.report.formats.legend import colour_key, failures, legend
from mtlscale.report.formats.number_format import EMPTY
from mtlscale.report.tables.columns import MOST_TASKS, LeaderboardColumn, by_block, columns
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from mtlscale.report.tables.table import Table

MANY_TASKS = 20  # more are shown on request alone
HINT = "`mtlscale leaderboard` shows all with --wide or --format csv."


@dataclass(frozen=True)
class Printed:
    """Tables of a data set no wider than the console, then failures, summary and legend; `wide` adds details."""

    table: Table
    wide: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        table, width = self.table, options.max_width
        if table.dataset:
            yield Text(table.dataset, style="bold")

        names = [table.name(method) for method in table.rows.index]
        shown_columns, hidden = columns(table), []
        if len(table.tasks) > MANY_TASKS and not self.wide:
            shown_columns = [column for column in shown_columns if column.block != "tasks"]
            hidden = [f"each of the {len(table.tasks)} tasks"]

        grids = [grid(names, block, "" if self.wide else HINT) for block in _blocks(shown_columns, names, width)]
        for table_grid in grids:
            yield from table_grid.table(console, width)
            hidden += [field.header for field in table_grid.left_out(width)]
            yield Text()

        if hidden:
            yield Text(f"Not shown for want of room: {', '.join(hidden)}. {HINT}", style="dim")
        for method, seed, status, error in failures(table):
            yield Text.assemble((f"{status} ", "red"), f"{method}, seed {seed}: {error}")

        yield Text(takeaway(table), style="bold")
        yield Text(f"{legend(table)} {colour_key(table)}\n", style="dim")


def grid(names: Sequence[str], block: Sequence[LeaderboardColumn], hint: str = "", first: str = "method") -> Grid:
    """Return the columns as a grid beside the names of their rows."""
    fields = [
        Field(
            header=column.header,
            texts=column.texts,
            right=True,
            prose=column.header == "events",
            detail=column.detail,
            styles=[_style(column, index) for index in range(len(names))],
        )
        for column in block
    ]

    return Grid(names=[Field(header=first, texts=names)], fields=fields, hint=hint)


def _blocks(columns: Sequence[LeaderboardColumn], names: Sequence[str], width: int) -> list[list[LeaderboardColumn]]:
    """Arrange quality, tests, tasks and cost in as few tables as the width allows."""
    quality, tasks, cost = by_block(columns)
    measures = [column for column in quality if not column.of_test]
    tests = [column for column in quality if column.of_test]
    few_tasks = len(tasks) <= MOST_TASKS

    arrangements = [
        *([[[*tasks, *quality]], [[*tasks, *measures], tests]] if few_tasks else []),
        [quality, tasks],
        [measures, tests, tasks],
    ]

    fitting = (
        arrangement
        for arrangement in arrangements
        if all(grid(names, block).width(width) <= width for block in arrangement[:1])
    )
    return [block for block in chain(next(fitting, arrangements[-1]), [cost]) if block]


def _style(column: LeaderboardColumn, index: int) -> str:
    """Return the style of a cell: the best is bold, tested differences are green and red; size alone has no colour."""
    if column.texts[index] == EMPTY:
        return "dim"
    tone = "green" if index in column.gains else "red" if index in column.losses else ""
    return f"bold {tone}".strip() if index in column.best else tone
