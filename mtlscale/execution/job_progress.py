"""Progress of a job, as lines of its log."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROGRESS = "MTLSCALE_PROGRESS"  # set to "lines" in a job: progress as lines that `JobProgress.read` understands


@dataclass(frozen=True)
class JobProgress:
    """The progress of a job, as one line of its log."""

    epochs: int
    of_epochs: int
    runs: int
    of_runs: int

    def __str__(self) -> str:
        return f"progress: {self.epochs}/{self.of_epochs} epochs, {self.runs}/{self.of_runs} runs"

    @classmethod
    def read(cls, line: str) -> JobProgress | None:
        numbers = re.fullmatch(r"progress: (\d+)/(\d+) epochs, (\d+)/(\d+) runs\s*", line)
        return None if numbers is None else cls(*map(int, numbers.groups()))
