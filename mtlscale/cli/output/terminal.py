"""Progress bars, tables and results on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    from mtlscale.report.formats.grid import Grid
    from mtlscale.report.results import Results


def epochs_bar(console: Console, *, disable: bool = False, unit: str = "epochs") -> Progress:
    """Return a bar over epochs, or what `unit` says, with the time left; it disappears when it ends (rich)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=disable,
    )


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    title: str = "",
    names: int = 1,
    right: Collection[str] = (),
    prose: Collection[str] = (),
    details: Collection[str] = (),
    hint: str = "",
) -> Grid:
    """Return a table that no terminal cuts off: columns fold into blocks, each with the first `names` columns.

    Args:
        headers: The headers of the columns.
        rows: The texts of each row.
        title: The title above the table.
        names: The number of columns that every block repeats.
        right: Headers of columns of numbers.
        prose: Headers of columns that may be wrapped between words.
        details: Headers of columns to leave out first.
        hint: How to see the columns that were left out.
    """
    from mtlscale.report.formats.grid import Field, Grid

    fields = [
        Field(
            header=header,
            texts=[row[index] for row in rows],
            right=header in right,
            prose=header in prose,
            detail=header in details,
        )
        for index, header in enumerate(headers)
    ]

    return Grid(names=fields[:names], fields=fields[names:], title=title, hint=hint)


def print_results(console: Console, results: Results, files: dict[str, Path]) -> None:
    """Print the leaderboards of an experiment and the folders of its report."""
    from mtlscale.report.tables.sheets import Sheet

    board = results.leaderboard()
    if (across_datasets := board.overall()) is not None:
        console.print(*Sheet.across(across_datasets).to_rich(), sep="\n")
    console.print(board.to_rich())
    for path in dict.fromkeys(file if file.parent == results.folder else file.parent for file in files.values()):
        console.print(f"  {path}", soft_wrap=True, highlight=False)
