"""How far a preparation is, in one line of a terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.status import Status

_MEGABYTE = 1e6


class PreparationProgress:
    """Listener that keeps a line up to date: the stage, rows, rows a second, and what was written."""

    def __init__(self, status: Status, dataset: str) -> None:
        self._status, self._dataset = status, dataset
        self._stage, self._started = "", time.perf_counter()

    def __call__(self, stage: str, done: int, total: int, written: int = 0, /) -> None:
        """Show how far a stage is; its rates count from its first word on."""
        if stage != self._stage:
            self._stage, self._started = stage, time.perf_counter()
        seconds = time.perf_counter() - self._started
        self._status.update(f"preparing {self._dataset}: {described(stage, done, total, written, seconds)}")


def described(stage: str, done: int, total: int, written: int, seconds: float) -> str:
    """Return the words for a stage that has taken these seconds so far."""
    parts = [f"{stage}, {done:,} of {total:,} rows"]
    if done and seconds > 0:
        parts.append(f"{done / seconds:,.0f} rows/s")
    if written:
        parts.append(f"{written / _MEGABYTE:,.1f} MB written")
        if seconds > 0:
            parts.append(f"{written / _MEGABYTE / seconds:,.1f} MB/s")
    return ", ".join(parts)
