"""Map of one function over many jobs, as Ray tasks or on threads, a few at a time, results as they finish."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import takewhile
from typing import Any, TypeVar

from pipelines._steps.blocks import Engine, ship_plugin

T = TypeVar("T")
R = TypeVar("R")

_DRAIN_SECONDS = 30.0  # seconds to wait for running tasks whose results are no longer wanted


def results_of(
    function: Callable[[T], R],
    jobs: Sequence[T],
    engine: Engine,
    go_on: Callable[[], bool],
    plugins: Sequence[Any] = (),
) -> Generator[R]:
    """Yield the function's result of each job, in the order in which jobs finish.

    When the iterator is closed before its end, the running jobs have ended.

    Args:
        function: The function.
        jobs: Its arguments.
        engine: Where it runs.
        go_on: Predicate that is asked before each job; once it is false, no job is started any more.
        plugins: Functions inside the jobs whose modules the workers may lack.
    """
    if engine == "local":
        yield from _threads(function, jobs, go_on)
        return

    for plugin in plugins:
        ship_plugin(plugin)
    yield from _ray_tasks(function, jobs, go_on)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(function: Callable[[T], R], jobs: Sequence[T], go_on: Callable[[], bool]) -> Generator[R]:
    """Yield results from one thread per core.

    Threads suffice, because Pillow, numpy and the encoder work without Python's lock.
    """
    pool = ThreadPoolExecutor(cores(), thread_name_prefix="shard")
    pending: set[Future[R]] = set()
    try:
        for job in takewhile(lambda _: go_on(), jobs):
            pending.add(pool.submit(function, job))
            if len(pending) > cores():  # one job waits while the others run
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in finished)

        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in finished)
    finally:
        pool.shutdown(cancel_futures=True)


def _call(function: Callable[[T], R], job: T) -> R:
    return function(job)


def _ray_tasks(function: Callable[[T], R], jobs: Sequence[T], go_on: Callable[[], bool]) -> Generator[R]:
    """Yield results from one Ray task per job; Ray retries a task whose worker or node is lost.

    Tasks whose results are no longer wanted run to their end: `ray.cancel`, called while a task is handed to its
    worker, aborts the driver (a failed check in `NormalTaskSubmitter`, Ray 2.60). They are few.
    """
    import ray

    task, function_ref = ray.remote(num_cpus=1)(_call), ray.put(function)
    ahead = 1 + max(1, int(ray.cluster_resources().get("CPU", 1)))  # one waits while the others run
    pending: list[Any] = []
    try:
        for job in takewhile(lambda _: go_on(), jobs):
            pending.append(task.remote(function_ref, job))
            if len(pending) >= ahead:
                finished, pending = ray.wait(pending)
                yield from ray.get(finished)

        while pending:
            finished, pending = ray.wait(pending)
            yield from ray.get(finished)
    finally:
        if pending:
            ray.wait(pending, num_returns=len(pending), timeout=_DRAIN_SECONDS)
