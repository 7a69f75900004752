"""Progress bars, tables and results on a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from mtlscale.report.results import Results


def epochs_bar(console: Console, *, disable: bool = False, unit: str = "epochs") -> Progress:
    """Return a bar over epochs, or what `unit` says, with the time gone and left; it disappears when it ends (rich)."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("gone,"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        disable=disable,
    )


def rows_bar(console: Console) -> Progress:
    """Return a bar over the rows of a preparation, with `words` beside it and the time gone; it disappears (rich)."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[words]}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def print_results(console: Console, results: Results, files: dict[str, Path]) -> None:
    """Print the leaderboards of an experiment and the folders of its report."""
    from mtlscale.report.formats.terminal import print_sheet
    from mtlscale.report.overall.columns import across

    board = results.leaderboard()
    if (across_datasets := board.overall()) is not None:
        console.print(*print_sheet(across(across_datasets)), sep="\n")
    console.print(board.to_rich())
    for path in dict.fromkeys(file if file.parent == results.folder else file.parent for file in files.values()):
        console.print(f"  {path}", soft_wrap=True, highlight=False)
