"""Progress bars, tables and results on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

ALL_COLUMNS = "all tables here: --wide"  # beside the place of a page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress
    from rich.text import Text

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


def runs_bar(console: Console, newest: Callable[[], Text | None]) -> Progress:
    """Return a bar over the epochs of an experiment that says its `counts` and the time left; it disappears (rich).

    Args:
        console: Where it is drawn.
        newest: The line below the bar, None for none.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    class Bar(Progress):
        def get_renderables(self) -> Iterable[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            if (line := newest()) is not None:
                yield line

    return Bar(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[counts]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
        console=console,
        transient=True,
        expand=True,
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


def print_results(console: Console, results: Results, files: dict[str, Path], *, wide: bool = False) -> None:
    """Print the first screen of an experiment and where its page is; `wide` prints all tables and files."""
    for part in results.report().printed(wide=wide):
        console.print(part)
    if wide:
        for path in dict.fromkeys(file if file.parent == results.folder else file.parent for file in files.values()):
            console.print(f"  {path}", soft_wrap=True, highlight=False)
        return

    page = next((file for file in files.values() if file.suffix == ".html"), results.folder)
    console.print(f"page: {shown_path(page)} ({ALL_COLUMNS})", soft_wrap=True, highlight=False, markup=False)


def shown_path(path: Path) -> str:
    """Return a path as it is shortest: from the folder one stands in, where it lies below that."""
    absolute = path.absolute()
    return str(absolute.relative_to(Path.cwd())) if absolute.is_relative_to(Path.cwd()) else str(path)
