"""The queue of runs that groups of workers share, and the retry of a run when its group fails.

It lies in a process that has not loaded the user's components, so it knows runs by the ids it is given.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtlscale.execution.faults.dumps import WorkerLocation
from mtlscale.execution.faults.failures import LostWorkers, because
from mtlscale.execution.workers.jobs import Batched, Job
from mtlscale.records.events import Advanced, RunEnded, RunEvent

RunIds = tuple[str, ...]  # of the runs of a job


@dataclass(frozen=True)
class LostRun:
    """Run that nobody will work on any more, and the cause."""

    run_id: str
    cause: str
    places: tuple[WorkerLocation, ...] = ()  # of its last workers, if they died without an exception


@dataclass
class _GroupState:
    """State of a group, as the queue knows it."""

    since: float  # time of its last sign of life
    reserved: RunIds | None = None  # of the only job it is for, which no other group takes; None: it takes any
    held: RunIds = ()  # of the runs it has to train, without those that have ended
    places: list[WorkerLocation] = field(default_factory=list)  # of its workers, where they are up
    handles: tuple[Any, ...] = ()
    fruitless: int = 0  # times in a row that its workers came up and died before they had a job
    complaint: str = ""  # what its workers have died of


@dataclass(frozen=True)
class GroupSnapshot:
    """Snapshot of a group for the driver.

    Attributes:
        quiet: Seconds since its last sign of life, 0 without a job.
        places: The locations of its workers, where they are up.
    """

    quiet: float
    places: tuple[WorkerLocation, ...]


@dataclass(frozen=True)
class QueueSnapshot:
    """Snapshot of the queue, with the events since the last one."""

    events: tuple[RunEvent | LostRun, ...]
    waiting: int
    next_job: str  # the id of a run of the next job
    held_jobs: int
    groups: dict[str, GroupSnapshot]


class JobQueue:
    """Jobs in their order, each held by at most one group.

    The job that a dead group held is the next to be handed out, to whichever group asks first, `max_failures` times;
    then it has failed. A group may instead be for one job alone, which is reserved for it when it is made.
    """

    def __init__(self, jobs: Mapping[RunIds, Job | Batched], max_failures: int) -> None:
        self._parts = {
            run_id: part for run_ids, job in jobs.items() for run_id, part in zip(run_ids, job.jobs, strict=True)
        }
        self._batched = {run_id for run_ids, job in jobs.items() if isinstance(job, Batched) for run_id in run_ids}
        self._waiting = deque(jobs)
        self._max = max_failures
        self._lost = LostWorkers(max_failures)
        self._groups: dict[str, _GroupState] = {}
        self._events: list[RunEvent | LostRun] = []

    def reserve(self, group: str) -> RunIds:
        """Reserve the next job that waits for a new group, which does no other; return the ids of its runs."""
        run_ids = self._waiting.popleft()
        self._groups[group] = _GroupState(time.monotonic(), reserved=run_ids)
        return run_ids

    def begin(self, group: str, *handles: Any) -> tuple[str | None, bool]:
        """Note that the workers of a group are about to be started; earlier ones are dead.

        Returns:
            The reason why they must not start, None if they may; and whether the group is healthy.
        """
        state = self._groups.setdefault(group, _GroupState(time.monotonic()))
        if not state.held and state.places:
            state.fruitless += 1
        self._give_back(state)
        state.places, state.handles = [], handles
        if state.fruitless > self._max:
            return f"workers died {state.fruitless} times before they had a run{because(state.complaint)}", False
        left = self._waiting if state.reserved is None else state.reserved
        return (None if left else "no run is left"), True

    def enter(self, group: str, location: WorkerLocation, *handles: Any) -> None:
        """Note that a worker of the group is up, and the handles of what it holds in the cluster."""
        state = self._groups[group]
        state.places.append(location)
        state.handles += tuple(handle for handle in handles if handle not in state.handles)

    def complain(self, group: str, text: str) -> None:
        """Note why a worker of the group dies; the first complaint names the cause, others follow from it."""
        self._groups[group].complaint = self._groups[group].complaint or text

    def take(self, group: str) -> Job | Batched | None:
        """Return the job to work on now, None when none is left."""
        state = self._groups[group]
        if state.reserved is not None:
            state.held, state.reserved = state.reserved, ()
        else:
            state.held = self._waiting.popleft() if self._waiting else ()
        state.since, state.fruitless = time.monotonic(), 0
        return self._job(state.held) if state.held else None

    def report(self, group: str, event: RunEvent) -> None:
        """Take an event of the job the group holds; ignore events of any other job."""
        state = self._groups[group]
        run_ids = event.run_ids if isinstance(event, Advanced) else (getattr(event, "run_id", ""),)
        if not set(state.held).issuperset(run_ids):
            return
        state.since = time.monotonic()
        if isinstance(event, RunEnded):
            state.held = tuple(run_id for run_id in state.held if run_id != event.run_id)
        self._events.append(event)

    def leave(self, group: str) -> None:
        """Remove a group that has ended, well or not, and give its job back."""
        if group not in self._groups:
            return
        state = self._groups.pop(group)
        self._give_back(state)
        if state.reserved:
            self._waiting.appendleft(state.reserved)

    def give_up(self, reason: str) -> None:
        """Fail the jobs that wait, those that are reserved among them."""
        reserved = [state for state in self._groups.values() if state.reserved]
        jobs = [*(state.reserved or () for state in reserved), *self._waiting]
        self._events += [LostRun(run_id, reason) for run_ids in jobs for run_id in run_ids]
        for state in reserved:
            state.reserved = ()
        self._waiting.clear()

    def snapshot(self) -> QueueSnapshot:
        events, self._events = tuple(self._events), []
        now = time.monotonic()
        groups = {
            name: GroupSnapshot(now - state.since if state.held else 0.0, tuple(state.places))
            for name, state in self._groups.items()
        }
        held_count = sum(bool(state.held or state.reserved) for state in self._groups.values())
        reserved = next((state.reserved for state in self._groups.values() if state.reserved), None)
        first = (reserved or (self._waiting[0] if self._waiting else ("",)))[0]
        return QueueSnapshot(events, len(self._waiting), first, held_count, groups)

    def handles(self) -> dict[str, tuple[Any, ...]]:
        """Return Ray's handles by which each group can be ended.

        They are no part of the snapshot: three times a second, those of hundreds of groups would cost more than all
        the rest.
        """
        return {name: state.handles for name, state in self._groups.items()}

    def _job(self, run_ids: RunIds) -> Job | Batched:
        """Return the job of these runs, which may be what is left of a batched one."""
        parts = tuple(self._parts[run_id] for run_id in run_ids)
        return Batched(parts) if run_ids[0] in self._batched else parts[0]

    def _give_back(self, group: _GroupState) -> None:
        """Return what a group held to the queue, or to the group if it is for this job alone."""
        lost, group.held = group.held, ()
        if not lost:
            return
        causes = {run_id: self._lost.failure(run_id, group.complaint, whose="its workers") for run_id in lost}
        places = () if group.complaint else tuple(group.places)
        self._events += [LostRun(run_id, cause, places) for run_id, cause in causes.items() if cause is not None]

        again = tuple(run_id for run_id, cause in causes.items() if cause is None)
        if group.reserved is not None:
            group.reserved = again
        elif again:
            self._waiting.appendleft(again)
        group.complaint = ""
