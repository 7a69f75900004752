"""Map of one function over many jobs, through Ray Data or on threads, a few at a time, results as they finish."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

from pipelines._engine.blocks import Engine, TellPlan, items, plans_told, ship_plugin
from pipelines._engine.ray_errors import in_one_line

T = TypeVar("T")
R = TypeVar("R")

_TOGETHER = 8  # jobs of a task at most: what is lost with a worker
_TASKS_PER_PROCESSOR = 2  # at least, where there are as many jobs


def results_of(
    function: Callable[[T], R],
    jobs: Sequence[T],
    engine: Engine,
    go_on: Callable[[], bool],
    plan: TellPlan,
    plugins: Sequence[Any] = (),
) -> Generator[R]:
    """Yield the function's result of each job, in the order in which jobs finish.

    When the iterator is closed before its end, no further job is started.

    Args:
        engine: Where it runs.
        go_on: Predicate that threads ask before each job; once it is false, they start none any more. Ray Data starts
            jobs until the iterator is closed.
        plan: Listener to the plan that Ray Data executes.
        plugins: Functions inside the jobs whose modules the workers may lack.
    """
    if engine == "local":
        yield from _threads(function, jobs, go_on)
        return

    for plugin in plugins:
        ship_plugin(plugin)
    yield from _ray_data(function, jobs, plan)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(function: Callable[[T], R], jobs: Sequence[T], go_on: Callable[[], bool]) -> Generator[R]:
    """Yield results from a thread per core: Pillow, numpy and the encoder work without Python's lock."""
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


def _ray_data(function: Callable[[T], R], jobs: Sequence[T], plan: TellPlan) -> Generator[R]:
    """Yield results from Ray Data, which tries again what is lost with a worker or a node."""
    import ray

    processors = max(1, int(ray.cluster_resources().get("CPU", 1)))
    # Several jobs a task: between two tasks of a processor Ray Data lets 0.2 s pass.
    together = min(_TOGETHER, max(1, len(jobs) // (_TASKS_PER_PROCESSOR * processors)))
    tasks = [jobs[start : start + together] for start in range(0, len(jobs), together)]
    lazy = items(tasks).flat_map(partial(_do_jobs, function=function), num_cpus=1)
    with in_one_line(), plans_told(plan):
        for row in lazy.iter_rows():
            yield row["result"]


def _do_jobs(row: dict[str, Any], function: Callable[[Any], Any]) -> list[dict[str, Any]]:
    return [{"result": function(job)} for job in row["item"]]
