"""A table in a terminal of whatever width."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from mtlscale.report.columns import MOST_TASKS, Column, by_block, columns
from mtlscale.report.grid import Field, Grid
from mtlscale.report.takeaway import takeaway
from mtlscale.report.texts import EMPTY
from mtlscale.report.words import colour_key, failures, legend

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from mtlscale.report.table import Table

MANY_TASKS = 20  # more are shown where somebody asks for all
HINT = "`mtlscale leaderboard` shows all with --wide or --format csv."


@dataclass(frozen=True)
class Printed:
    """Tables of a data set no wider than the console, then failures, summary and legend; `wide`: details, too."""

    table: Table
    wide: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        table, width = self.table, options.max_width
        if table.dataset:
            yield Text(table.dataset, style="bold")
        names = [table.name(method) for method in table.rows.index]
        found, gone = columns(table), []
        if len(table.tasks) > MANY_TASKS and not self.wide:
            found = [column for column in found if column.block != "tasks"]
            gone = [f"each of the {len(table.tasks)} tasks"]
        grids = [grid(names, block, "" if self.wide else HINT) for block in _blocks(found, names, width)]
        for one in grids:
            yield from one.table(console, width)
            gone += [field.header for field in one.left_out(width)]
            yield Text()
        if gone:
            yield Text(f"Not shown for want of room: {', '.join(gone)}. {HINT}", style="dim")
        for method, seed, status, error in failures(table):
            yield Text.assemble((f"{status} ", "red"), f"{method}, seed {seed}: {error}")
        yield Text(takeaway(table), style="bold")
        yield Text(f"{legend(table)} {colour_key(table)}\n", style="dim")


def grid(names: Sequence[str], block: Sequence[Column], hint: str = "", first: str = "method") -> Grid:
    """The columns beside the names of their rows."""
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


def _blocks(found: Sequence[Column], names: Sequence[str], width: int) -> list[list[Column]]:
    """Quality, tests, tasks and cost, in as few tables as the width lets them stand in."""
    quality, tasks, cost = by_block(found)
    measures = [column for column in quality if not column.of_test]
    tests = [column for column in quality if column.of_test]
    few = len(tasks) <= MOST_TASKS
    ways = [
        *([[[*tasks, *quality]], [[*tasks, *measures], tests]] if few else []),
        [quality, tasks],
        [measures, tests, tasks],
    ]
    fitting = (way for way in ways if all(grid(names, block).width(width) <= width for block in way[:1]))
    return [block for block in chain(next(fitting, ways[-1]), [cost]) if block]


def _style(column: Column, index: int) -> str:
    """Bold is the best, green and red what the test finds: no colour by mere size."""
    if column.texts[index] == EMPTY:
        return "dim"
    tone = "green" if index in column.gains else "red" if index in column.losses else ""
    return f"bold {tone}".strip() if index in column.best else tone
