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
from mtlscale.execution.workers.jobs import Job
from mtlscale.records.events import RunEnded, RunEvent


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
    run_id: str | None = None  # the id of its run
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
    next_job: str  # the run id of the next job
    held_jobs: int
    groups: dict[str, GroupSnapshot]


class JobQueue:
    """Jobs in their order, each held by at most one group.

    The job that a dead group held is the next to be handed out, to whichever group asks first, `max_failures` times;
    then it has failed.
    """

    def __init__(self, jobs: Mapping[str, Job], max_failures: int) -> None:
        self._jobs = dict(jobs)  # by the ids of their runs
        self._waiting = deque(self._jobs)
        self._max = max_failures
        self._lost = LostWorkers(max_failures)
        self._groups: dict[str, _GroupState] = {}
        self._events: list[RunEvent | LostRun] = []

    def begin(self, group: str, *handles: Any) -> tuple[str | None, bool]:
        """Note that the workers of a group are about to be started; earlier ones are dead.

        Returns:
            The reason why they must not start, None if they may; and whether the group is healthy.
        """
        state = self._groups.setdefault(group, _GroupState(time.monotonic()))
        if state.run_id is None and state.places:
            state.fruitless += 1
        self._give_back(state)
        state.places, state.handles = [], handles
        if state.fruitless > self._max:
            return f"workers died {state.fruitless} times before they had a run{because(state.complaint)}", False
        return (None if self._waiting else "no run is left"), True

    def place(self, group: str, handle: Any) -> None:
        """Add the handle of the resources that the group now holds in the cluster."""
        self._groups[group].handles += (handle,)

    def enter(self, group: str, location: WorkerLocation) -> None:
        """Note that a worker of the group is up."""
        self._groups[group].places.append(location)

    def complain(self, group: str, text: str) -> None:
        """Note why a worker of the group dies; the first complaint names the cause, others follow from it."""
        self._groups[group].complaint = self._groups[group].complaint or text

    def take(self, group: str) -> Job | None:
        """Return the job to work on now, None when none is left."""
        state = self._groups[group]
        state.run_id = self._waiting.popleft() if self._waiting else None
        state.since, state.fruitless = time.monotonic(), 0
        return None if state.run_id is None else self._jobs[state.run_id]

    def report(self, group: str, event: RunEvent) -> None:
        """Take an event of the job the group holds; ignore events of any other job."""
        state = self._groups[group]
        if state.run_id is None or state.run_id != getattr(event, "run_id", None):
            return
        state.since = time.monotonic()
        if isinstance(event, RunEnded):
            state.run_id = None
        self._events.append(event)

    def leave(self, group: str) -> None:
        """Remove a group that has ended, well or not, and give its job back."""
        if group in self._groups:
            self._give_back(self._groups.pop(group))

    def give_up(self, reason: str) -> None:
        """Fail the jobs that wait."""
        self._events += [LostRun(run_id, reason) for run_id in self._waiting]
        self._waiting.clear()

    def snapshot(self) -> QueueSnapshot:
        events, self._events = tuple(self._events), []
        now = time.monotonic()
        groups = {
            name: GroupSnapshot(0.0 if state.run_id is None else now - state.since, tuple(state.places))
            for name, state in self._groups.items()
        }
        held_count = sum(state.run_id is not None for state in self._groups.values())
        first = self._waiting[0] if self._waiting else ""
        return QueueSnapshot(events, len(self._waiting), first, held_count, groups)

    def handles(self) -> dict[str, tuple[Any, ...]]:
        """Return Ray's handles by which each group can be ended.

        They are no part of the snapshot: three times a second, those of hundreds of groups would cost more than all
        the rest.
        """
        return {name: state.handles for name, state in self._groups.items()}

    def _give_back(self, group: _GroupState) -> None:
        run_id, group.run_id = group.run_id, None
        if run_id is None:
            return
        cause = self._lost.failure(run_id, group.complaint, whose="its workers")
        if cause is None:
            self._waiting.appendleft(run_id)
        else:
            places = () if group.complaint else tuple(group.places)
            self._events.append(LostRun(run_id, cause, places))
        group.complaint = ""
