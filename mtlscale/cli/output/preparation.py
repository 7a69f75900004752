"""How far the preparation of a data set is: a bar over rows on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mtlscale.cli.output.terminal import rows_bar

if TYPE_CHECKING:
    from rich.console import Console

_MEGABYTE = 1e6
_LINE_SECONDS = 10.0  # between two lines, in a log
_RATE_SECONDS = 1.0  # of a stage, before which its rates say nothing


class PreparationBar:
    """Listener to a preparation that shows its stage, rows, bytes and rates."""

    def __init__(self, console: Console, dataset: str) -> None:
        self._console, self._dataset = console, dataset
        self._stage, self._started, self._last_line = "", time.perf_counter(), time.monotonic()
        self._bar = rows_bar(console)
        self._task = self._bar.add_task(f"preparing {dataset}", total=None, words="")

    def __enter__(self) -> PreparationBar:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:  # elsewhere rich would print an empty line
            self._bar.stop()

    def __call__(self, stage: str, done: int, total: int, size: int = 0, /) -> None:
        """Show how far a stage is; its rates count from its first word on."""
        if stage != self._stage:
            self._stage, self._started = stage, time.perf_counter()
            self._bar.reset(self._task, total=total or None)

        words = described(done, total, size, time.perf_counter() - self._started)
        title = f"preparing {self._dataset}: {stage}"
        self._bar.update(self._task, description=title, completed=done, total=total or None, words=words)

        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= _LINE_SECONDS:
            self._last_line = now
            self._console.print(f"{title}, {words}", highlight=False, markup=False, soft_wrap=True)


def described(done: int, total: int, size: int, seconds: float) -> str:
    """Return the words for a stage that has taken these seconds so far."""
    parts = [f"{done:,} of {total:,} rows" if total else f"{done:,} rows"]
    if done and seconds >= _RATE_SECONDS:
        parts.append(f"{done / seconds:,.0f} rows/s")
    if size:
        parts.append(f"{size / _MEGABYTE:,.1f} MB")
        if seconds >= _RATE_SECONDS:
            parts.append(f"{size / _MEGABYTE / seconds:,.1f} MB/s")
    return ", ".join(parts)
