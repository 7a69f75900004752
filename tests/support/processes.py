"""What tests do to real processes: find the workers of a run, wait until they are gone."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

import psutil


def run_workers(parent: psutil.Process) -> list[psutil.Process]:
    """The processes below this one that train runs; other clusters on the machine are none of ours."""
    found = []
    for process in parent.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if _trains(" ".join(process.cmdline())):
                found.append(process)
    return found


def _trains(command: str) -> bool:
    """Ray calls a process as the task it executes, and an idle one as its actor."""
    return command.startswith("ray::") and any(
        part in command for part in ("RunWorker", "PlannedTrial", "mtlscale worker", " · ")
    )


def wait_until_gone(processes: Iterable[psutil.Process], seconds: float = 60) -> None:
    """A dead process that nobody waits for stays in the table as a zombie: it counts as gone."""
    deadline = time.monotonic() + seconds
    while left := [process for process in processes if _alive(process)]:
        assert time.monotonic() < deadline, f"still alive: {left}"
        time.sleep(0.05)


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False
