"""What the commands draw on a terminal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.text import Text

    from mtlscale.report.grid import Grid
    from mtlscale.report.results import Results


def epochs_bar(console: Console, *, disable: bool = False, unit: str = "epochs") -> Progress:
    """A bar over epochs, or what `unit` says, with the time left, gone when it ends (rich)."""
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
    """A table to print that no terminal cuts off: columns fold into blocks, each with the first `names` columns.

    `right`: headers of columns of numbers; `prose`: of those that may be wrapped between words; `details`: of those to
    leave out first, where `hint` says how to see them.
    """
    from mtlscale.report.grid import Field, Grid

    fields = [
        Field(
            header=header,
            texts=[row[place] for row in rows],
            right=header in right,
            prose=header in prose,
            detail=header in details,
        )
        for place, header in enumerate(headers)
    ]
    return Grid(names=fields[:names], fields=fields[names:], title=title, hint=hint)


def print_results(console: Console, results: Results, files: dict[str, Path]) -> None:
    console.print(results.leaderboard().to_rich())
    for path in dict.fromkeys(file if file.parent == results.folder else file.parent for file in files.values()):
        console.print(f"  {path}", soft_wrap=True, highlight=False)
