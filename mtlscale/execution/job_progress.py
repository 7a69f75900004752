"""How far a job is, in its log."""

from __future__ import annotations

import re
from dataclasses import dataclass

PROGRESS = "MTLSCALE_PROGRESS"  # set to "lines" in a job: progress as lines that `JobProgress.read` understands


@dataclass(frozen=True)
class JobProgress:
    """How far a job is, as one line of its log."""

    epochs: int
    of_epochs: int
    runs: int
    of_runs: int

    def __str__(self) -> str:
        return f"progress: {self.epochs}/{self.of_epochs} epochs, {self.runs}/{self.of_runs} runs"

    @classmethod
    def read(cls, line: str) -> JobProgress | None:
        found = re.fullmatch(r"progress: (\d+)/(\d+) epochs, (\d+)/(\d+) runs\s*", line)
        return None if found is None else cls(*map(int, found.groups()))
