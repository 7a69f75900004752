"""Tables in a terminal of any width."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtlscale.report.cells.grid import Grid
from mtlscale.report.cells.sheet import Column, Sheet
from mtlscale.report.columns.shown import MOST_TASKS, by_block, columns
from mtlscale.report.report_section import ReportSection
from mtlscale.report.sheets.dataset import names_of
from mtlscale.report.tables.caveats import colour_key, definitions, failures
from mtlscale.report.tables.takeaway import takeaway

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

    from mtlscale.report.tables.table import Table

_WIDTH = 120  # columns where no terminal says how many it has


@dataclass(frozen=True)
class Printed:
    """All tables of a data set no wider than the console, then notes and failures."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        table, width = self.table, options.max_width
        if table.dataset:
            yield Text(table.dataset, style="bold")

        for grid in _grids(columns(table), names_of(table), width):
            yield from grid.table(console, width)
            yield Text()

        for method, seed, status, error in failures(table):
            yield Text.assemble((f"{status} ", "red"), f"{method}, seed {seed}: {error}")
        if table.notes:
            yield Text(f"{'; '.join(table.notes)}.\n", style="dim")


def conclusions(tables: Collection[Table]) -> Iterator[RenderableType]:
    """Yield what stands below all tables: each part of a legend once, then the takeaway of each data set."""
    from rich.text import Text

    datasets: dict[str, list[str]] = {}
    for table in tables:
        for part in definitions(table):
            datasets.setdefault(part, []).append(table.dataset)
    parts = [part if len(of) == len(tables) else f"{', '.join(of)}: {part}" for part, of in datasets.items()]
    keys = " ".join(dict.fromkeys(filter(None, map(colour_key, tables))))
    yield Text(f"{'; '.join(parts)}. {keys}".rstrip() + "\n", style="dim")
    for table in tables:
        yield Text(takeaway(table), style="bold")


def print_sheet(sheet: Sheet) -> Iterator[RenderableType]:
    """Yield a table between its title and its text, its notes below."""
    from rich.text import Text

    yield Text(sheet.title, style="bold")
    yield Grid(replace(sheet, title=""))
    if sheet.text:
        yield Text(f"\n{sheet.text}", style="bold")
    if sheet.below:
        yield Text(f"{sheet.below}\n", style="dim")


def print_section(section: ReportSection) -> Iterator[RenderableType]:
    """Yield a section's title, texts and tables."""
    from rich.text import Text

    yield Text(section.title, style="bold")
    for text in section.texts:
        yield Text(f"{text}\n")
    for table in section.tables:
        yield from print_sheet(table)


def plain_text(part: RenderableType) -> str:
    """Return what a terminal shows, without colours."""
    from rich.console import Console

    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    console = Console(width=width, color_system=None, force_terminal=False, force_jupyter=False)
    with console.capture() as captured:
        console.print(part)
    return captured.get().rstrip("\n")


def _grids(columns: Sequence[Column], names: Column, width: int) -> list[Grid]:
    """Arrange quality, tests, tasks and cost in as few tables as the width allows."""
    quality, tasks, cost = by_block(columns)
    measures = [column for column in quality if not column.of_test]
    tests = [column for column in quality if column.of_test]

    arrangements = [[quality, tasks], [measures, tests, tasks]]
    if len(tasks) <= MOST_TASKS:
        arrangements = [[[*tasks, *quality]], [[*tasks, *measures], tests], *arrangements]

    grids: list[Grid] = []
    for arrangement in arrangements:
        grids = [Grid(Sheet(columns=[names, *block])) for block in (*arrangement, cost) if block]
        if grids and grids[0].width(width) <= width:
            break
    return grids
