"""Where a worker that hangs stands: dumps of all its threads, asked from outside and without its help."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mtlscale.execution import leftovers

_ANSWER_SECONDS = 5.0
_CHARACTERS = 20_000  # of the thread dump of one worker


class Place(NamedTuple):
    """A worker process: where it runs, and the file its thread dumps go to there."""

    node: str
    pid: int
    file: str


def listen() -> Place:
    """In the worker: from now on SIGUSR1 writes a thread dump, even while it is stuck in C code."""
    import ray

    leftovers.clear()
    handle, name = tempfile.mkstemp(prefix=leftovers.prefix("dump"))
    faulthandler.register(signal.SIGUSR1, file=handle, all_threads=True, chain=False)
    return Place(ray.get_runtime_context().get_node_id(), os.getpid(), name)


def ask(pid: int, file: str) -> str:
    """On the worker's node: its thread dump; a clause that says why there are none."""
    path = Path(file)
    try:
        before = path.stat().st_size
        os.kill(pid, signal.SIGUSR1)
    except OSError as error:
        return f"no thread dump: {error}"
    deadline = time.monotonic() + _ANSWER_SECONDS
    size = before
    while time.monotonic() < deadline:
        time.sleep(0.1)
        grown = path.stat().st_size
        if grown > before and grown == size:
            break  # and no longer growing
        size = grown
    return path.read_text(errors="replace")[before:][-_CHARACTERS:] or "no thread dump: the process does not answer"


def end(pid: int, file: str) -> None:
    """On the worker's node: kill -9."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    Path(file).unlink(missing_ok=True)


def everywhere(places: Iterable[Place], what: str = "ask") -> dict[Place, str]:
    """`ask` or `end` of many workers, each on its node; those whose node does not answer are left out."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)({"ask": ask, "end": end}[what])
    asked = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(place.node, soft=False)).remote(
            place.pid, place.file
        ): place
        for place in places
    }
    if not asked:
        return {}
    ready, _ = ray.wait(list(asked), num_returns=len(asked), timeout=6 * _ANSWER_SECONDS)
    found = {}
    for ref in ready:
        with contextlib.suppress(ray.exceptions.RayError):
            found[asked[ref]] = ray.get(ref) or ""
    return found
