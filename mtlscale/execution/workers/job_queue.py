"""The queue of jobs that workers pull from, and the retry of a run when its worker is lost.

It lies in a process that has not loaded the user's components, so it knows runs by the ids it is given.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtlscale.execution.faults.dumps import WorkerLocation
from mtlscale.execution.faults.failures import because
from mtlscale.execution.faults.post_mortem import first_line
from mtlscale.execution.workers.jobs import Batched, Job
from mtlscale.records.events import Advanced, RunEnded, RunEvent

RunIds = tuple[str, ...]  # of the runs of a job


@dataclass(frozen=True)
class LostRun:
    """Run that nobody will work on any more, and the cause.

    Attributes:
        cause: How often its worker was lost, and why if that is known.
        places: The locations of its last worker's processes, if they died without an exception.
        ray_says: Ray's error then, "" if there is none.
    """

    run_id: str
    cause: str
    places: tuple[WorkerLocation, ...] = ()
    ray_says: str = ""


@dataclass
class _WorkerState:
    """State of a worker, as the queue knows it."""

    since: float  # time of its last sign of life
    reserved: RunIds | None = None  # of the only job it is for, which no other worker takes; None: it takes any
    held: RunIds = ()  # of the runs it has to train, without those that have ended
    places: list[WorkerLocation] = field(default_factory=list)  # of its processes, where they are up
    handles: tuple[Any, ...] = ()
    idle: bool = True  # it has had no job yet
    complaint: str = ""  # what its processes have died of


@dataclass(frozen=True)
class WorkerSnapshot:
    """Snapshot of a worker for the driver.

    Attributes:
        quiet: Seconds since its last sign of life, 0 without a job.
        places: The locations of its processes, where they are up.
        run_id: The id of a run that it has to train, "" if it has none.
    """

    quiet: float
    places: tuple[WorkerLocation, ...]
    run_id: str


@dataclass(frozen=True)
class QueueSnapshot:
    """Snapshot of the queue, with the events since the last one."""

    events: tuple[RunEvent | LostRun, ...]
    waiting: int
    next_job: str  # the id of a run of the next job
    held_jobs: int
    workers: dict[str, WorkerSnapshot]

    def is_up(self, worker: str) -> bool:
        return worker in self.workers and bool(self.workers[worker].places)


class JobQueue:
    """Jobs in their order, each held by at most one worker.

    The job that a dead worker held is the next to be handed out, to whichever worker asks first, `max_failures` times;
    then it has failed. A worker may instead be for one job alone, which is reserved for it when it is made. Workers
    that die before they have had a job do so `patience` times in a row; then every job that waits has failed.
    """

    def __init__(self, jobs: Mapping[RunIds, Job | Batched], max_failures: int, patience: int = 0) -> None:
        self._parts = {
            run_id: part for run_ids, job in jobs.items() for run_id, part in zip(run_ids, job.jobs, strict=True)
        }
        self._batched = {run_id for run_ids, job in jobs.items() if isinstance(job, Batched) for run_id in run_ids}
        self._waiting = deque(jobs)
        self._max, self._losses = max_failures, Counter[str]()  # how often each run has lost its worker
        self._patience, self._fruitless = max(patience, max_failures), 0
        self._workers: dict[str, _WorkerState] = {}
        self._events: list[RunEvent | LostRun] = []

    def reserve(self, worker: str, run_ids: RunIds | None = None) -> RunIds:
        """Reserve a job for a worker, which does no other; return the ids of its runs.

        Args:
            worker: The worker; if it is known, its processes have died, and these are others.
            run_ids: The ids of runs, of which a job that waits is taken; None: the next job.
        """
        self.leave(worker, "")
        jobs = (job for job in self._waiting if run_ids is None or job[0] in run_ids)
        if reserved := next(jobs, ()):
            self._waiting.remove(reserved)
        self._workers[worker] = _WorkerState(time.monotonic(), reserved=reserved)
        return reserved

    def take_own(self, worker: str, run_ids: RunIds, location: WorkerLocation) -> Job | Batched | None:
        """Return the job of these runs for a worker that is up and chooses its jobs; None if it is not to be done."""
        self.reserve(worker, run_ids)
        self.enter(worker, location)
        return self.take(worker)

    def begin(self, worker: str, *handles: Any) -> bool:
        """Note that the processes of a worker are about to be started, and the handles they can be ended by.

        Returns:
            Whether any job is left for it.
        """
        state = self._workers.setdefault(worker, _WorkerState(time.monotonic()))
        state.handles = handles
        return bool(self._waiting if state.reserved is None else state.reserved)

    def enter(self, worker: str, location: WorkerLocation, *handles: Any) -> None:
        """Note that a process of the worker is up, and the handles of what it holds in the cluster."""
        state = self._workers.setdefault(worker, _WorkerState(time.monotonic()))
        state.places.append(location)
        state.handles += tuple(handle for handle in handles if handle not in state.handles)

    def complain(self, worker: str, text: str) -> None:
        """Note why a process of the worker dies; the first complaint names the cause, others follow from it."""
        if (state := self._workers.get(worker)) is not None:
            state.complaint = state.complaint or text

    def take(self, worker: str) -> Job | Batched | None:
        """Return the job to work on now, None when none is left."""
        state = self._workers[worker]
        if state.reserved is not None:
            state.held, state.reserved = state.reserved, ()
        else:
            state.held = self._waiting.popleft() if self._waiting else ()
        state.since, state.idle, self._fruitless = time.monotonic(), False, 0
        return self._job(state.held) if state.held else None

    def report(self, worker: str, *events: RunEvent) -> None:
        """Take events of the job the worker holds; ignore events of any other job."""
        state = self._workers.get(worker, _WorkerState(0.0))
        for event in events:
            run_ids = event.run_ids if isinstance(event, Advanced) else (getattr(event, "run_id", ""),)
            if not set(state.held).issuperset(run_ids):
                continue
            state.since = time.monotonic()
            if isinstance(event, RunEnded):
                state.held = tuple(run_id for run_id in state.held if run_id != event.run_id)
            self._events.append(event)

    def leave(self, worker: str, error: str | None = None) -> RunIds | None:
        """Remove a worker that has ended, and give its job back.

        Args:
            worker: The worker.
            error: Why it has ended, "" if that is unknown; None: because nothing was left for it, or it was ended.

        Returns:
            The ids of the runs that were lost with it, none if it died before it had any; None if nothing was lost.
        """
        state = self._workers.pop(worker, None)
        if state is None:
            return None
        if state.held:
            self._give_back(state, error or "")
        if state.reserved:
            self._waiting.appendleft(state.reserved)
        if state.idle and error is not None:
            self._fruitless += 1
            if self._fruitless > self._patience:
                cause = state.complaint or first_line(error)
                self.give_up(f"workers died {self._fruitless} times before they had a run{because(cause)}")
        return state.held if error is not None and (state.idle or state.held) else None

    def give_up(self, reason: str) -> None:
        """Fail the jobs that wait, those that are reserved among them."""
        reserved = [state for state in self._workers.values() if state.reserved]
        jobs = [*(state.reserved or () for state in reserved), *self._waiting]
        self._events += [LostRun(run_id, reason) for run_ids in jobs for run_id in run_ids]
        for state in reserved:
            state.reserved = ()
        self._waiting.clear()

    def snapshot(self) -> QueueSnapshot:
        events, self._events = tuple(self._events), []
        now = time.monotonic()
        workers = {
            name: WorkerSnapshot(
                now - state.since if state.held else 0.0, tuple(state.places), next(iter(state.held), "")
            )
            for name, state in self._workers.items()
        }
        held_count = sum(bool(state.held or state.reserved) for state in self._workers.values())
        reserved = next((state.reserved for state in self._workers.values() if state.reserved), None)
        first = (reserved or (self._waiting[0] if self._waiting else ("",)))[0]
        return QueueSnapshot(events, len(self._waiting), first, held_count, workers)

    def handles(self) -> dict[str, tuple[Any, ...]]:
        """Return Ray's handles by which each worker can be ended.

        They are no part of the snapshot: three times a second, those of hundreds of workers would cost more than all
        the rest.
        """
        return {name: state.handles for name, state in self._workers.items()}

    def _job(self, run_ids: RunIds) -> Job | Batched:
        """Return the job of these runs, which may be what is left of a batched one."""
        parts = tuple(self._parts[run_id] for run_id in run_ids)
        return Batched(parts) if run_ids[0] in self._batched else parts[0]

    def _give_back(self, state: _WorkerState, ray_says: str) -> None:
        """Return what a dead worker held to the queue; fail what has been lost too often."""
        self._losses.update(state.held)
        causes = {
            run_id: f"its worker died {times} times{because(state.complaint)}"
            for run_id in state.held
            if (times := self._losses[run_id]) > self._max
        }
        places, ray_says = ((), "") if state.complaint else (tuple(state.places), ray_says)
        self._events += [LostRun(run_id, cause, places, ray_says) for run_id, cause in causes.items()]
        if again := tuple(run_id for run_id in state.held if run_id not in causes):
            self._waiting.appendleft(again)
