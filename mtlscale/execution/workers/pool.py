"""Pool for runs of one worker each: warm actors that work through a queue."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mtlscale.execution.faults import dumps
from mtlscale.execution.faults.failures import LostWorkers, StartTimeout
from mtlscale.execution.faults.post_mortem import first_line
from mtlscale.execution.monitoring import log
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.names import actor_name
from mtlscale.execution.workers.trial import execute
from mtlscale.execution.workers.worker import Plugin, failed, setup, sources
from mtlscale.records.events import RunEnded, RunEvent

_LOOK_SECONDS = 5.0  # between two looks for workers that hang


@dataclass
class _Busy:
    """Worker with a job."""

    actor: Any
    job: Job | Batched
    location: Any  # reference to where the worker runs
    since: float  # of its last sign of life
    up: bool = False  # the worker has said where it runs


class _RunWorker:
    """Actor of the pool: one process that keeps libraries and data warm between runs."""

    def __init__(self, threads: int, plugins: list[Plugin], experiment: str) -> None:
        self._experiment = experiment
        self._place = dumps.listen()
        setup(threads, plugins)

    def __repr__(self) -> str:
        """Return the name in Ray's logs, which Ray asks for once: its runs are named by their tasks."""
        return f"mtlscale worker of {self._experiment}"

    def place(self) -> dumps.WorkerLocation:
        return self._place

    def run(self, job: Job | Batched, options: Options) -> Iterator[RunEvent]:
        yield from execute(job, options)


class _Pool:
    """Warm actors, the queue of jobs they work through, and the jobs they hold."""

    def __init__(self, jobs: Sequence[Job | Batched], slots: int, options: Options) -> None:
        import ray

        resources = options.resources
        self._slots, self._options = slots, options
        self._remote = ray.remote(num_cpus=resources.cpus_per_worker, num_gpus=resources.gpus_per_worker)(_RunWorker)
        self._plugins = sources(options.plugins)
        self._experiment = jobs[0].jobs[0].run.experiment

        self._queue: deque[Job | Batched] = deque(jobs)
        self._lost = LostWorkers(resources.max_failures)
        self._idle = [self._start_actor() for _ in range(min(slots, len(jobs)))]
        self._ended: set[str] = set()  # the ids of runs whose record has arrived
        self._busy: dict[Any, _Busy] = {}  # by its stream of events

        self._limit = 60 * resources.timeout_minutes
        self._looked = time.monotonic()
        self._start_timeout = StartTimeout(resources)

    def actors(self) -> list[Any]:
        """Return all actors of the pool."""
        return [*self._idle, *(worker.actor for worker in self._busy.values())]

    def events(self) -> Iterator[RunEvent]:
        """Yield the events of the jobs until all have ended, or no worker has come up in time."""
        while self._queue or self._busy:
            self._hand_out()
            yield from self._ready_events()

            now = time.monotonic()
            if now - self._looked < min(self._limit, _LOOK_SECONDS):
                continue
            self._looked = now

            yield from self._note_waiting(now)
            if self._start_timeout.failure is not None:
                yield from self._give_up(self._start_timeout.failure)
                return
            yield from self._end_hung(now)

    def _start_actor(self) -> Any:
        name = actor_name("worker", self._experiment)
        return self._remote.options(name=name).remote(self._options.threads, self._plugins, self._experiment)

    def _hand_out(self) -> None:
        """Give queued jobs to idle workers, and to new ones as long as there are slots."""
        while self._queue and (self._idle or len(self._busy) < self._slots):
            actor = self._idle.pop() if self._idle else self._start_actor()
            job = self._queue.popleft()
            location = actor.place.options(name=f"start · {job.title}").remote()
            stream = actor.run.options(num_returns="streaming", name=job.title).remote(job, self._options)
            self._busy[stream] = _Busy(actor, job, location, time.monotonic())

    def _ready_events(self) -> Iterator[RunEvent]:
        """Wait for the next event, and yield one of each worker that has any."""
        import ray

        timeout = min(self._limit, _LOOK_SECONDS)
        ready, _ = ray.wait(list(self._busy), num_returns=1, fetch_local=False, timeout=timeout)
        if ready and len(self._busy) > 1:  # all that are: asking anew for each would cost the square of the workers
            ready, _ = ray.wait(list(self._busy), num_returns=len(self._busy), fetch_local=False, timeout=0)

        for stream in ready:
            if stream not in self._busy:
                continue  # its worker had only just come up, and another has taken its job
            try:
                event: RunEvent = ray.get(next(stream))
            except StopIteration:
                self._release(self._busy.pop(stream).actor)
                continue
            except ray.exceptions.RayError as error:
                yield from self._requeue(stream, first_line(str(error)), str(error))
                continue

            self._busy[stream].up, self._busy[stream].since = True, time.monotonic()
            if isinstance(event, RunEnded):
                self._ended.add(event.run_id)
            yield event

    def _up(self, stream: Any) -> bool:
        """Return whether the worker has come up; from then on it may be quiet for the time limit."""
        import ray

        worker = self._busy[stream]
        if not worker.up and ray.wait([worker.location], timeout=0)[0]:
            worker.up, worker.since = True, time.monotonic()
        return worker.up

    def _release(self, actor: Any) -> None:
        """Keep an idle worker for the next job, or for one whose worker has not come up; else end it."""
        import ray

        stream = None if self._queue else next((stream for stream in self._busy if not self._up(stream)), None)
        if stream is not None:
            worker = self._busy.pop(stream)
            ray.kill(worker.actor)
            self._queue.append(worker.job)

        if self._queue:
            self._idle.append(actor)
        else:
            ray.kill(actor)

    def _requeue(self, stream: Any, reason: str, ray_says: str = "") -> Iterator[RunEvent]:
        """Give the job of a lost worker back to the queue, or end it as failed; its node is asked why before that."""
        import ray

        worker = self._busy.pop(stream)
        ray.kill(worker.actor)
        unfinished = tuple(part for part in worker.job.jobs if part.run.run_id not in self._ended)
        if not unfinished:  # it died between its last record and the end of the stream
            return

        again = []
        for part in unfinished:
            run = part.run
            log.warning("worker lost", extra={"run_id": run.run_id, "method": run.method, "error": reason})
            if ray_says and self._lost.is_last(run.run_id):
                reason, ray_says = dumps.why_dead(_places_of(worker), ray_says), ""
            cause = self._lost.failure(run.run_id, reason)
            if cause is None:
                again.append(part)
            else:
                yield RunEnded(run.run_id, failed(run, cause))
        if again:
            self._queue.appendleft(Batched(tuple(again)) if isinstance(worker.job, Batched) else worker.job)

    def _note_waiting(self, now: float) -> Iterator[RunEvent]:
        """Check the start timeout of workers that have not come up."""
        waiting = [worker for stream, worker in self._busy.items() if not self._up(stream)]
        for worker in waiting:  # for a node, or for its libraries: the clock runs from then on
            worker.since = now
        first = waiting[0].job.jobs[0].run.run_id if waiting else ""
        yield from self._start_timeout.note(first, up=len(waiting) < len(self._busy))
        if self._start_timeout.try_again:
            self._start_timeout.try_again = False
            self._start_anew()

    def _start_anew(self) -> None:
        """End the workers that have not come up, and give their jobs back to the queue in their order."""
        import ray

        for stream, worker in reversed([*self._busy.items()]):
            if not worker.up:
                ray.kill(worker.actor)
                del self._busy[stream]
                self._queue.appendleft(worker.job)

    def _give_up(self, reason: str) -> Iterator[RunEvent]:
        """End all jobs as failed."""
        for job in [*(worker.job for worker in self._busy.values()), *self._queue]:
            yield from (RunEnded(part.run.run_id, failed(part.run, reason)) for part in job.jobs)

    def _end_hung(self, now: float) -> Iterator[RunEvent]:
        """Log the thread dumps of all workers if one hangs, and requeue the jobs of those that do."""
        minutes = self._options.resources.timeout_minutes
        hung = [stream for stream, worker in self._busy.items() if now - worker.since > self._limit]
        if hung:
            _log_dumps(list(self._busy.values()), minutes)
        for stream in hung:
            yield from self._requeue(stream, f"no sign of life within {minutes:g} minutes; thread dumps in the log")


def execute_pool(jobs: Sequence[Job | Batched], slots: int, options: Options) -> Iterator[RunEvent]:
    """Work through the jobs on `slots` actors; a run whose actor dies resumes on a new one, `max_failures` times.

    An actor that finds nothing to do ends at once: its place is for others, or for an autoscaler to take away.
    """
    import ray

    pool = _Pool(jobs, slots, options)
    try:
        yield from pool.events()
    finally:
        for actor in pool.actors():
            ray.kill(actor)


def _places_of(worker: _Busy) -> list[dumps.WorkerLocation]:
    """Return where a worker that has died was; nothing if it died before it could say."""
    import ray

    with contextlib.suppress(ray.exceptions.RayError):
        return [ray.get(worker.location, timeout=5)]
    return []


def _log_dumps(workers: Sequence[_Busy], minutes: float) -> None:
    """Log the thread dumps of all workers: one that hangs may wait for another."""
    import ray

    worker_by_place = {}
    for worker in workers:
        with contextlib.suppress(ray.exceptions.RayError):
            worker_by_place[ray.get(worker.location, timeout=5)] = worker

    for location, text in dumps.everywhere(worker_by_place).items():
        run = worker_by_place[location].job.jobs[0].run
        quiet = time.monotonic() - worker_by_place[location].since
        event = "worker hangs" if quiet > 60 * minutes else "another worker meanwhile"
        log.warning(event, extra={"run_id": run.run_id, "method": run.method, "dump": text, "seconds": quiet})
