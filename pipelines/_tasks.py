"""The same function of many jobs, as Ray tasks or on threads of this process: a few at a time, results as they come."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import takewhile
from typing import Any, TypeVar

from pipelines._blocks import Engine, ship_plugin

T = TypeVar("T")
R = TypeVar("R")

_PATIENCE = 30.0  # seconds for what is being worked on to end, once nobody wants it any more


def each(
    function: Callable[[T], R],
    jobs: Sequence[T],
    engine: Engine,
    go_on: Callable[[], bool],
    plugins: Sequence[Any] = (),
) -> Generator[R]:
    """The function's result of each job, in the order in which they are done.

    Once `go_on` says no, no job is begun any more. Where the iterator is closed before its end, those at work have
    ended. plugins: functions that the jobs hold, whose modules the workers may not have.
    """
    if engine == "local":
        yield from _threads(function, jobs, go_on)
        return
    for held in plugins:
        ship_plugin(held)
    yield from _ray_tasks(function, jobs, go_on)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _threads(function: Callable[[T], R], jobs: Sequence[T], go_on: Callable[[], bool]) -> Generator[R]:
    """On a thread for every core: Pillow, numpy and the encoder work without Python's lock."""
    pool = ThreadPoolExecutor(cores(), thread_name_prefix="shard")
    at_work: set[Future[R]] = set()
    try:
        for job in takewhile(lambda _: go_on(), jobs):
            at_work.add(pool.submit(function, job))
            if len(at_work) > cores():  # one job is waiting while the others are worked on
                done, at_work = wait(at_work, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while at_work:
            done, at_work = wait(at_work, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(cancel_futures=True)


def _call(function: Callable[[T], R], job: T) -> R:
    return function(job)


def _ray_tasks(function: Callable[[T], R], jobs: Sequence[T], go_on: Callable[[], bool]) -> Generator[R]:
    """A task each, tried again by Ray where its worker or node is lost."""
    import ray

    task, held = ray.remote(num_cpus=1)(_call), ray.put(function)
    ahead = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
    at_work: list[Any] = []
    try:
        for job in takewhile(lambda _: go_on(), jobs):
            at_work.append(task.remote(held, job))
            if len(at_work) >= ahead:
                done, at_work = ray.wait(at_work)
                yield from ray.get(done)
        while at_work:
            done, at_work = ray.wait(at_work)
            yield from ray.get(done)
    finally:
        for reference in at_work:
            ray.cancel(reference)
        if at_work:
            ray.wait(at_work, num_returns=len(at_work), timeout=_PATIENCE)
