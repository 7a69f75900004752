"""Sections in a terminal of any width."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mtlscale.report.cells.blocks import MOST_TASKS, by_block
from mtlscale.report.cells.grid import GAP, Grid
from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.report_section import ReportSection

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

_WIDTH = 120  # columns where no terminal says how many it has


@dataclass(frozen=True)
class Printed:
    """A section no wider than the console: texts, tables, runs that did not finish, notes, and the conclusion."""

    section: ReportSection

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        section = self.section
        if section.title:
            yield Text(section.title, style="bold")
        for text in section.sentences:
            yield Text(f"{text}\n")
        for sheet in section.tables:
            yield from _printed(sheet, console, options.max_width)
        for runs, status, cause in section.failures:
            text = f"{runs}: {cause}" if cause else runs
            yield Text.assemble((f"{status} ", "red"), text) if status else Text(text)
        if section.legend:
            yield Text(section.legend, style="dim")
        if section.summary:
            yield Text(section.summary, style="bold")


def plain_text(part: RenderableType) -> str:
    """Return what a terminal shows, without colours."""
    from rich.console import Console

    width = shutil.get_terminal_size((_WIDTH, 24)).columns
    console = Console(width=width, color_system=None, force_terminal=False, force_jupyter=False)
    with console.capture() as captured:
        console.print(part)
    return captured.get().rstrip("\n")


def _printed(sheet: Sheet, console: Console, width: int) -> Iterator[RenderableType]:
    """Yield a table between its title and its text, its notes below."""
    from rich.text import Text

    if sheet.blocks:
        for grid in _grids(sheet, width):
            yield from grid.table(console, width)
            yield Text()
        return
    if sheet.width is not None:
        yield from _narrow(sheet, width := min(width, sheet.width)).table(console, width)
        return

    yield Text(sheet.title, style="bold")
    yield Grid(replace(sheet, title=""))
    if sheet.text:
        yield Text(f"\n{sheet.text}", style="bold")
    if sheet.below:
        yield Text(f"{sheet.below}\n", style="dim")


def _narrow(sheet: Sheet, width: int) -> Grid:
    """Return a table that gives the names the room that its other columns leave."""
    grid = Grid(sheet)
    used_width = grid.width(width) - grid.names_width(width)
    return replace(grid, longest_name=max(1, width - used_width - GAP))


def _grids(sheet: Sheet, width: int) -> list[Grid]:
    """Arrange quality, tests, tasks and cost in as few tables as the width allows."""
    names, *fields = sheet.columns
    quality, tasks, cost = by_block(fields)
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
