"""Thread dumps of workers that hang, requested from outside and without their help."""

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

from mtlscale.execution import temp_files as leftovers

_ANSWER_SECONDS = 5.0
_CHARACTERS = 20_000  # of the thread dump of one worker


class WorkerLocation(NamedTuple):
    """The location of a worker process: its node, its id, and the file there that its thread dumps go to."""

    node: str
    pid: int
    file: str


def listen() -> WorkerLocation:
    """Write a thread dump of this worker on each SIGUSR1 from now on, even while it is stuck in C code."""
    import ray

    leftovers.clear()
    handle, name = tempfile.mkstemp(prefix=leftovers.prefix("dump"))
    faulthandler.register(signal.SIGUSR1, file=handle, all_threads=True, chain=False)
    return WorkerLocation(ray.get_runtime_context().get_node_id(), os.getpid(), name)


def request_dump(pid: int, file: str) -> str:
    """Return a worker's thread dump, or a clause that says why there is none; call it on the worker's node."""
    path = Path(file)

    try:
        old_size = path.stat().st_size
        os.kill(pid, signal.SIGUSR1)
    except OSError as error:
        return f"no thread dump: {error}"

    deadline = time.monotonic() + _ANSWER_SECONDS
    size = old_size
    while time.monotonic() < deadline:
        time.sleep(0.1)
        new_size = path.stat().st_size
        if new_size > old_size and new_size == size:
            break  # written, and no longer growing
        size = new_size

    return path.read_text(errors="replace")[old_size:][-_CHARACTERS:] or "no thread dump: the process does not answer"


def end(pid: int, file: str) -> None:
    """Kill a worker by SIGKILL and remove its dump file; call it on the worker's node."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    Path(file).unlink(missing_ok=True)


def everywhere(places: Iterable[WorkerLocation], purpose: str = "ask") -> dict[WorkerLocation, str]:
    """Call `ask` or `end` for many workers, each on its node; leave out those whose node does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)({"ask": request_dump, "end": end}[purpose])
    worker_of = {
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(worker.node, soft=False)).remote(
            worker.pid, worker.file
        ): worker
        for worker in places
    }
    if not worker_of:
        return {}

    ready, _ = ray.wait(list(worker_of), num_returns=len(worker_of), timeout=6 * _ANSWER_SECONDS)
    answers = {}
    for ref in ready:
        with contextlib.suppress(ray.exceptions.RayError):
            answers[worker_of[ref]] = ray.get(ref) or ""
    return answers
