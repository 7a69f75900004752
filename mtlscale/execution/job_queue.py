"""The one queue that groups of workers take their runs from, and what becomes of a run when its group dies.

It lies in a process that has not loaded the user's components, so it knows runs by the ids it is given.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtlscale.execution.dumps import Place
from mtlscale.execution.events import Event, RunEnded
from mtlscale.execution.jobs import Job


@dataclass(frozen=True)
class Lost:
    """A run that nobody will work on any more."""

    run_id: str
    cause: str


@dataclass
class _Group:
    """What is known of a group. places: of its workers, where they are up."""

    since: float  # of its last sign of life
    held: str | None = None  # the id of its run
    places: list[Place] = field(default_factory=list)
    handles: tuple[Any, ...] = ()
    fruitless: int = 0  # times in a row that its workers came up and died before they had a job
    complaint: str = ""  # what its workers have died of


@dataclass(frozen=True)
class Seen:
    """A group as the driver sees it. quiet: seconds since its last sign of life, 0 without a job. handles: of Ray's, by
    which it can be ended."""

    quiet: float
    places: tuple[Place, ...]
    handles: tuple[Any, ...]


@dataclass(frozen=True)
class Standing:
    """What has happened since the last look, and how things stand. first: the run id of the next job."""

    events: tuple[Event | Lost, ...]
    waiting: int
    first: str
    held: int
    groups: dict[str, Seen]


class JobQueue:
    """Jobs in their order, each held by at most one group. The job a dead group held is the next to be handed out, to
    whichever group asks first, `max_failures` times; then it has failed."""

    def __init__(self, jobs: Mapping[str, Job], max_failures: int) -> None:
        self._jobs = dict(jobs)  # by the ids of their runs
        self._waiting = deque(self._jobs)
        self._max = max_failures
        self._failures: Counter[str] = Counter()  # of each run
        self._groups: dict[str, _Group] = {}
        self._events: list[Event | Lost] = []

    def begin(self, group: str, *handles: Any) -> tuple[str | None, bool]:
        """The workers of a group are about to be started; earlier ones are dead. Why they must not be, None where they
        may; and whether all is well with the group."""
        one = self._groups.setdefault(group, _Group(time.monotonic()))
        if one.held is None and one.places:
            one.fruitless += 1
        self._give_back(one)
        one.places, one.handles = [], handles
        if one.fruitless > self._max:
            return f"workers died {one.fruitless} times before they had a run{_because(one.complaint)}", False
        return (None if self._waiting else "no run is left"), True

    def place(self, group: str, handle: Any) -> None:
        """The group has its places in the cluster."""
        self._groups[group].handles += (handle,)

    def enter(self, group: str, place: Place) -> None:
        """A worker of the group is up."""
        self._groups[group].places.append(place)

    def complain(self, group: str, text: str) -> None:
        """A worker of the group dies of something; the first to say so knows the cause, others of the group follow."""
        self._groups[group].complaint = self._groups[group].complaint or text

    def take(self, group: str) -> Job | None:
        """The job to work on now, None when none is left."""
        one = self._groups[group]
        one.held = self._waiting.popleft() if self._waiting else None
        one.since, one.fruitless = time.monotonic(), 0
        return None if one.held is None else self._jobs[one.held]

    def report(self, group: str, event: Event) -> None:
        """What happens to the job the group holds; of any other job nothing is believed."""
        one = self._groups[group]
        if one.held is None or one.held != getattr(event, "run_id", None):
            return
        one.since = time.monotonic()
        if isinstance(event, RunEnded):
            one.held = None
        self._events.append(event)

    def leave(self, group: str) -> None:
        """A group has ended, well or not."""
        if group in self._groups:
            self._give_back(self._groups.pop(group))

    def give_up(self, reason: str) -> None:
        """Jobs that wait have failed."""
        self._events += [Lost(run_id, reason) for run_id in self._waiting]
        self._waiting.clear()

    def look(self) -> Standing:
        events, self._events = tuple(self._events), []
        now = time.monotonic()
        groups = {
            name: Seen(0.0 if one.held is None else now - one.since, tuple(one.places), one.handles)
            for name, one in self._groups.items()
        }
        held = sum(one.held is not None for one in self._groups.values())
        first = self._waiting[0] if self._waiting else ""
        return Standing(events, len(self._waiting), first, held, groups)

    def _give_back(self, one: _Group) -> None:
        run_id, one.held = one.held, None
        if run_id is None:
            return
        self._failures[run_id] += 1
        if self._failures[run_id] <= self._max:
            self._waiting.appendleft(run_id)
        else:
            cause = f"its workers died {self._failures[run_id]} times{_because(one.complaint)}"
            self._events.append(Lost(run_id, cause))
        one.complaint = ""


def _because(complaint: str) -> str:
    return f": {complaint}" if complaint else ""
