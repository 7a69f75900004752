"""Thread dumps of workers that hang, and causes of death, found from outside and without the workers' help."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from mtlscale.execution import temp_files
from mtlscale.execution.faults.post_mortem import Birth, cause_of_death, in_one_line, node_died, note_birth

_ANSWER_SECONDS = 5.0
_SEARCH_SECONDS = 60.0  # for what a worker died of; on a busy machine a task starts late
_CHARACTERS = 20_000  # of the thread dump of one worker


class WorkerLocation(NamedTuple):
    """The location of a worker process: its node, its id, and the file there that its thread dumps go to.

    The node is "" where Ray has not started the process; nobody looks there.
    """

    node: str
    pid: int
    file: str
    birth: Birth = Birth()


def listen() -> WorkerLocation:
    """Write a thread dump of this worker on each SIGUSR1 from now on, even while it is stuck in C code.

    Also note what tells later why it died.
    """
    import ray

    temp_files.clear()
    handle, name = tempfile.mkstemp(prefix=temp_files.prefix("dump"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])  # a local Ray's processes hear none by default
    faulthandler.register(signal.SIGUSR1, file=handle, all_threads=True, chain=False)
    return WorkerLocation(ray.get_runtime_context().get_node_id(), os.getpid(), name, note_birth())


@contextlib.contextmanager
def ends_if_silent(minutes: float, path: Path) -> Iterator[None]:
    """End this process if the body takes longer, even while it is stuck in C code.

    Args:
        minutes: The most that the body may take.
        path: The file that the thread dump is added to; nothing is left of it if the body ends in time.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        faulthandler.dump_traceback_later(60 * minutes, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
            if not os.fstat(file.fileno()).st_size:
                path.unlink(missing_ok=True)


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


def why_dead(places: Iterable[WorkerLocation], ray_says: str) -> str:
    """Return in one line why workers have died; look on their nodes for it.

    Args:
        places: Where the workers were.
        ray_says: Ray's error, or the exception of a worker; "" if there is none.
    """
    import ray

    locations = [] if node_died(ray_says) else [worker for worker in places if worker.node]
    tasks = [
        ray.remote(num_cpus=0, max_retries=0)(cause_of_death).options(scheduling_strategy=_on_node(worker.node))
        for worker in locations
    ]
    refs = [task.remote(worker.birth) for task, worker in zip(tasks, locations, strict=True)]
    ready, _ = ray.wait(refs, num_returns=len(refs), timeout=_SEARCH_SECONDS) if refs else ([], [])

    findings = []
    for ref in ready:
        with contextlib.suppress(ray.exceptions.RayError):
            findings.append(ray.get(ref))
    limit = next((worker.birth.limit for worker in locations if worker.birth.limit), "")
    return in_one_line(ray_says, findings, limit)


def _on_node(node: str) -> Any:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def everywhere(places: Iterable[WorkerLocation], purpose: str = "ask") -> dict[WorkerLocation, str]:
    """Call `ask` or `end` for many workers, each on its node; leave out those whose node does not answer."""
    import ray

    task = ray.remote(num_cpus=0, max_retries=0)({"ask": request_dump, "end": end}[purpose])
    worker_of = {
        task.options(scheduling_strategy=_on_node(worker.node)).remote(worker.pid, worker.file): worker
        for worker in places
        if worker.node
    }
    if not worker_of:
        return {}

    ready, _ = ray.wait(list(worker_of), num_returns=len(worker_of), timeout=6 * _ANSWER_SECONDS)
    answers = {}
    for ref in ready:
        with contextlib.suppress(ray.exceptions.RayError):
            answers[worker_of[ref]] = ray.get(ref) or ""
    return answers
