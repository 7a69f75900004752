"""Runs of one worker each: a pool of warm actors that work through a queue."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtlscale.execution import dumps
from mtlscale.execution.events import Event, RunEnded
from mtlscale.execution.jobs import Batched, Job, Options
from mtlscale.execution.patience import Patience
from mtlscale.execution.trial import execute
from mtlscale.execution.watch import log
from mtlscale.execution.worker import Plugin, failed, setup, sources

_LOOK_SECONDS = 5.0  # between two looks for workers that hang


@dataclass
class _Busy:
    """A worker with a job."""

    actor: Any
    job: Job | Batched
    failures: int  # of the job, so far
    place: Any  # reference to where the worker runs
    since: float  # of its last sign of life
    up: bool = False  # the worker has said where it runs


class _RunWorker:
    """The actor: one process that keeps libraries and data warm between runs."""

    def __init__(self, threads: int, plugins: list[Plugin]) -> None:
        self._place = dumps.listen()
        setup(threads, plugins)

    def place(self) -> dumps.Place:
        return self._place

    def run(self, job: Job | Batched, options: Options) -> Iterator[Event]:
        yield from execute(job, options)


def execute_pool(jobs: Sequence[Job | Batched], slots: int, options: Options) -> Iterator[Event]:
    """Work through the jobs on `slots` actors; a run whose actor dies resumes on a new one, `max_failures` times.

    An actor that finds nothing to do ends at once: its place is for others, or for an autoscaler to take away.
    """
    import ray

    resources = options.resources
    remote = ray.remote(num_cpus=resources.cpus_per_worker, num_gpus=resources.gpus_per_worker)(_RunWorker)

    plugins = sources(options.plugins)

    def start() -> Any:
        return remote.remote(options.threads, plugins)

    queue: deque[tuple[Job | Batched, int]] = deque((job, 0) for job in jobs)
    idle = [start() for _ in range(min(slots, len(jobs)))]
    ended: set[str] = set()
    busy: dict[Any, _Busy] = {}  # by its stream of events
    limit = 60 * resources.timeout_minutes
    looked = time.monotonic()
    patience = Patience(resources)

    def up(stream: Any) -> bool:
        """Whether the worker has come up. From then on it may be quiet for so long."""
        one = busy[stream]
        if not one.up and ray.wait([one.place], timeout=0)[0]:
            one.up, one.since = True, time.monotonic()
        return one.up

    def release(actor: Any) -> None:
        """An idle worker takes what is next, or what waits for a worker that has not found a place, or ends."""
        stream = next((stream for stream in busy if not queue and not up(stream)), None)
        if stream is not None:
            one = busy.pop(stream)
            ray.kill(one.actor)
            queue.append((one.job, one.failures))
        if queue:
            idle.append(actor)
        else:
            ray.kill(actor)

    def lost(stream: Any, reason: str) -> Iterator[Event]:
        """A worker is gone: its job goes back to the queue, or ends as failed."""
        one = busy.pop(stream)
        ray.kill(one.actor)
        left = tuple(part for part in one.job.jobs if part.run.run_id not in ended)
        if not left:  # it died between its last record and the end of the stream
            return
        names = [part.run for part in left]
        for run in names:
            log.warning("worker lost", extra={"run_id": run.run_id, "method": run.method, "error": reason})
        if one.failures < resources.max_failures:
            queue.appendleft((Batched(left) if isinstance(one.job, Batched) else one.job, one.failures + 1))
            return
        for run in names:
            yield RunEnded(run.run_id, failed(run, f"its worker died {one.failures + 1} times: {reason}"))

    try:
        while queue or busy:
            while queue and (idle or len(busy) < slots):
                actor = idle.pop() if idle else start()
                job, failures = queue.popleft()
                place = actor.place.remote()
                stream = actor.run.options(num_returns="streaming").remote(job, options)
                busy[stream] = _Busy(actor, job, failures, place, time.monotonic())
            ready, _ = ray.wait(list(busy), num_returns=1, fetch_local=False, timeout=min(limit, _LOOK_SECONDS))
            if ready and len(busy) > 1:  # all that are: asking anew for each would cost the square of the workers
                ready, _ = ray.wait(list(busy), num_returns=len(busy), fetch_local=False, timeout=0)
            for stream in ready:
                if stream not in busy:
                    continue  # its worker had only just come up, and another has taken its job
                try:
                    event: Event = ray.get(next(stream))
                except StopIteration:
                    release(busy.pop(stream).actor)
                    continue
                except ray.exceptions.RayError as error:
                    yield from lost(stream, str(error).strip().splitlines()[0])
                    continue
                busy[stream].up, busy[stream].since = True, time.monotonic()
                if isinstance(event, RunEnded):
                    ended.add(event.run_id)
                yield event
            now = time.monotonic()
            if now - looked < min(limit, _LOOK_SECONDS):
                continue
            looked = now
            waiting = [one for stream, one in busy.items() if not up(stream)]
            for one in waiting:  # for a node, or for its libraries: the clock runs from then on
                one.since = now
            first = waiting[0].job.jobs[0].run.run_id if waiting else ""
            yield from patience.note(first, up=len(waiting) < len(busy))
            if patience.lost is not None:
                for job in [*(one.job for one in busy.values()), *(job for job, _ in queue)]:
                    yield from (RunEnded(part.run.run_id, failed(part.run, patience.lost)) for part in job.jobs)
                return
            hung = [stream for stream, one in busy.items() if now - one.since > limit]
            if hung:
                _log_dumps(list(busy.values()), resources.timeout_minutes)
            for stream in hung:
                yield from lost(
                    stream, f"no sign of life within {resources.timeout_minutes:g} minutes; thread dumps in the log"
                )
    finally:
        for actor in [*idle, *(one.actor for one in busy.values())]:
            ray.kill(actor)


def _log_dumps(workers: Sequence[_Busy], minutes: float) -> None:
    """The thread dumps of all workers: one that hangs may wait for another."""
    import ray

    places = {}
    for one in workers:
        with contextlib.suppress(ray.exceptions.RayError):
            places[ray.get(one.place, timeout=5)] = one
    for place, text in dumps.everywhere(places).items():
        run = places[place].job.jobs[0].run
        quiet = time.monotonic() - places[place].since
        event = "worker hangs" if quiet > 60 * minutes else "another worker meanwhile"
        log.warning(event, extra={"run_id": run.run_id, "method": run.method, "dump": text, "seconds": quiet})
