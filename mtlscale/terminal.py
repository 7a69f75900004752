"""What the commands draw on a terminal."""

from __future__ import annotations

from typing import Any


def epochs_bar(console: Any, *, disable: bool = False) -> Any:
    """A bar over epochs with the time left, gone when it ends (rich)."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=console,
        transient=True,
        disable=disable,
    )
