"""The executor: one queue of jobs, and workers that pull from it, however they are started.

A new way to start workers is one class, a `Start`; what becomes of a worker that is lost, that hangs, or that does not
come up is the same for all.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from mtlscale.execution.faults import dumps
from mtlscale.execution.faults.failures import StartTimeout, because
from mtlscale.execution.faults.post_mortem import first_line
from mtlscale.execution.monitoring import log
from mtlscale.execution.workers.actor_start import ActorStart
from mtlscale.execution.workers.job_queue import LostRun, QueueSnapshot, RunIds
from mtlscale.execution.workers.jobs import Batched, Job, Options
from mtlscale.execution.workers.ray_queue import Queue, QueueEndedError
from mtlscale.execution.workers.train_start import TrainStart
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Home
from mtlscale.records.events import RunEnded, RunEvent

_LOOK_SECONDS = 0.3  # between two looks at the queue
_END_SECONDS = 20.0  # for workers to end that have found the queue empty


class Worker(Protocol):
    """A worker that was started: processes that pull jobs from the queue until none is left for them."""

    name: str  # in the queue

    def ended(self) -> bool:
        """Return whether its processes are gone, or have nothing to do any more."""

    @property
    def error(self) -> str | None:
        """Why it has ended: the text of an error; None if nothing was left for it."""

    def late(self) -> None:
        """Take note that no job waits and it is not up: end it, unless it learns so itself."""

    def dismiss(self) -> None:
        """Take note that every job has ended: end it, unless it ends by itself."""

    def end(self, handles: Sequence[Any]) -> None:
        """End it, whatever it does; the handles are those that it has left with the queue."""


class Start(Protocol):
    """A way to start workers.

    Attributes:
        queue: What makes the queue, in a place that the workers reach.
        own: True if each worker is for one job alone, and called like it.
        capacity: How many jobs one worker does at once.
    """

    @property
    def queue(self) -> Callable[[Mapping[RunIds, Job | Batched], int, int], Queue]: ...

    @property
    def own(self) -> bool: ...

    @property
    def capacity(self) -> int: ...

    def worker(self, name: str, title: str, queue: Queue) -> Worker:
        """Start a worker, and return before it is up.

        Args:
            name: Its name in the queue.
            title: What it is called in lists that people read.
            queue: The queue that it takes its jobs from.
        """


def start_of(options: Options, home: Home, experiment: str) -> Start:
    """Return the start of workers that the options ask for: actors, or groups of Ray Train."""
    if options.resources.workers == 1 and not options.resources.train:
        return ActorStart(options, experiment)
    return TrainStart(options, home.root / "ray_train", experiment)


def execute_jobs(jobs: Sequence[Job | Batched], slots: int, options: Options, start: Start) -> Iterator[RunEvent]:
    """Work through the jobs, at most `slots` at once, and yield the events of their runs.

    A run whose worker is lost resumes on whichever worker is free first, `max_failures` times. A worker that finds
    nothing to do ends at once: its place is for others, or for an autoscaler to take away.
    """
    executor = _Executor(jobs, slots, options, start)
    try:
        while True:
            standing = executor.look()
            for event in standing.events:
                yield executor.heard(event)
            if executor.remaining == 0:
                return

            yield from executor.mend(standing)
            time.sleep(_LOOK_SECONDS)
    finally:
        executor.end()


class _Executor:
    """The queue, and the workers that were started for it."""

    def __init__(self, jobs: Sequence[Job | Batched], slots: int, options: Options, start: Start) -> None:
        self._parts = {part.run.run_id: part for job in jobs for part in job.jobs}
        self.remaining, at_once = len(self._parts), min(slots, len(jobs))
        self._options, self._start, self._most = options, start, math.ceil(at_once / start.capacity)

        resources = options.resources
        by_runs = {tuple(part.run.run_id for part in job.jobs): job for job in jobs}
        patience = resources.max_failures + at_once - 1  # a lost node takes all that start there
        self._queue = start.queue(by_runs, resources.max_failures, patience)

        self._workers: list[Worker] = []
        self._started = 0
        self._restarted: set[str] = set()  # the workers that were ended because they did not come up
        self._hung: dict[str, tuple[dumps.WorkerLocation, ...]] = {}  # by worker, where it was ended
        self._start_timeout = StartTimeout(resources)

    def look(self) -> QueueSnapshot:
        """Return how the queue stands, which knows of the workers that have ended."""
        self._bury()
        return self._queue.snapshot()

    def heard(self, event: RunEvent | LostRun) -> RunEvent:
        """Return what is told of an event: a run that is lost has failed, with the cause that is known."""
        if isinstance(event, LostRun):
            cause = dumps.why_dead(event.places, event.ray_says) if event.places or event.ray_says else ""
            event = RunEnded(event.run_id, failed(self._parts[event.run_id].run, f"{event.cause}{because(cause)}"))
        self.remaining -= isinstance(event, RunEnded)
        return event

    def mend(self, standing: QueueSnapshot) -> Iterator[RunEvent]:
        """Start the workers that lack, and end those that hang or do not come up; yield notes on that."""
        for worker in self._workers if not standing.waiting else ():
            if not standing.is_up(worker.name):
                worker.late()
        self._start_workers(standing)
        self._end_hung(standing)

        up = any(worker.places for worker in standing.workers.values())
        yield from self._start_timeout.note(standing.next_job, up)
        if self._start_timeout.try_again:
            self._start_timeout.try_again = False
            self._start_anew(standing)
        if self._start_timeout.failure is not None:
            self._queue.give_up(self._start_timeout.failure)

    def end(self) -> None:
        """Wait for workers that have nothing to do any more; end those that do not end by themselves."""
        try:
            standing, handles = self._queue.snapshot(), self._queue.handles()
        except QueueEndedError:
            standing, handles = QueueSnapshot((), 0, "", 0, {}), {}
        except Exception as error:  # Ray itself has ended, and its workers with it
            log.info("the queue of jobs has ended", extra={"error": str(error).partition("\n")[0]})
            return

        late = self._workers
        if self.remaining == 0:
            for worker in self._workers:
                worker.dismiss()
            up = [worker for worker in self._workers if standing.is_up(worker.name)]
            deadline = time.monotonic() + _END_SECONDS
            while (late := [worker for worker in up if not worker.ended()]) and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
        for worker in late:
            worker.end(handles.get(worker.name, ()))
        self._queue.close()

    def _start_workers(self, standing: QueueSnapshot) -> None:
        """Start a worker for every job that waits for one, as long as there is room."""
        free = 0 if self._start.own else len(self._workers) - standing.held_jobs
        while len(self._workers) < self._most and free < standing.waiting:
            self._started, free = self._started + 1, free + 1
            name, title = f"worker-{os.getpid()}-{time.time_ns()}-{self._started}", f"worker {self._started}"
            if self._start.own:
                run_ids = self._queue.reserve(name)
                if not run_ids:
                    return
                title = Batched(tuple(self._parts[run_id] for run_id in run_ids)).title
            else:
                self._queue.begin(name)
            self._workers.append(self._start.worker(name, title, self._queue))

    def _bury(self) -> None:
        """Remove workers that have ended, and give their jobs back."""
        for worker in [worker for worker in self._workers if worker.ended()]:
            self._workers.remove(worker)
            error = None if worker.name in self._restarted else worker.error
            lost = self._queue.leave(worker.name, error)
            for run_id in [] if lost is None else lost or [""]:
                method = self._parts[run_id].run.method if run_id else ""
                log.warning("worker lost", extra={"run_id": run_id, "method": method, "error": first_line(error or "")})

    def _start_anew(self, standing: QueueSnapshot) -> None:
        """End the workers that have not come up; others start in their places."""
        handles = self._queue.handles()
        for worker in self._workers:
            if not standing.is_up(worker.name):
                self._restarted.add(worker.name)
                worker.end(handles.get(worker.name, ()))

    def _end_hung(self, standing: QueueSnapshot) -> None:
        """Log the thread dumps of all workers if one hangs, and end those that do; their jobs are given back."""
        minutes = self._options.resources.timeout_minutes
        hung = {
            name: worker
            for name, worker in standing.workers.items()
            if worker.quiet > 60 * minutes and worker.places and self._hung.get(name) != worker.places
        }
        if not hung:
            return

        worker_by_place = {place: name for name, worker in standing.workers.items() for place in worker.places}
        for place, text in dumps.everywhere(worker_by_place).items():
            name = worker_by_place[place]
            run_id, quiet = standing.workers[name].run_id, standing.workers[name].quiet
            extra = {"run_id": run_id, "dump": text, "seconds": quiet, "error": f"process {place.pid}"}
            log.warning("worker hangs" if name in hung else "another worker meanwhile", extra=extra)

        for name, worker in hung.items():
            self._hung[name] = worker.places
            self._queue.complain(name, f"no sign of life within {minutes:g} minutes; thread dumps in the log")
            dumps.everywhere(worker.places, "end")
