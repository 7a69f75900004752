"""One driver at a time for an experiment of a home folder, and no run trained by two.

A second driver of the same experiment watches the first and goes on after it. Drivers of different experiments that
share runs leave each run to whoever claimed it first, and take it over where that driver ends without it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mtlscale.execution.events import Event, RunEnded
from mtlscale.execution.jobs import Batched, Job
from mtlscale.execution.observer import Observer
from mtlscale.execution.plan import labelled
from mtlscale.execution.standing import standing
from mtlscale.execution.stopping import Interrupted, Stop, stopping
from mtlscale.records import (
    Home,
    Lease,
    RunRecord,
    Storage,
    StorageLease,
    clear_temporaries,
    is_full,
    no_space,
    read_record,
    take,
)
from mtlscale.spec import UserError

LOOK_SECONDS = 1.0  # between two looks at what another driver does
LEFT_SECONDS = 3600.0  # untouched for so long, a file that was being written is nobody's any more


@dataclass
class Counts:
    """How far this driver is: all runs or trials, and the records there are so far."""

    records: Mapping[str, RunRecord] = field(default_factory=dict)
    total: int = 0
    what: str = "runs"

    def __str__(self) -> str:
        done = sum(record.status != "failed" for record in self.records.values())
        return f": {done} of {self.total} {self.what} are done" if self.total else ""


class Owner:
    """This process, while it drives an experiment."""

    def __init__(self, lease: Lease, stop: Stop, observer: Observer) -> None:
        self._lease, self._stop, self._observer = lease, stop, observer
        self.counts = Counts()

    def check(self) -> None:
        """Raises where this process should not go on."""
        self._stop.check()
        if self._lease.lost is not None:
            name, holder = self._lease.holder.experiment, self._lease.lost
            raise UserError(f"{name} was taken over by {holder}, because this process stood still; it goes on there")

    def share(
        self, jobs: Sequence[Job | Batched], execute: Callable[[Sequence[Job | Batched]], Iterator[Event]]
    ) -> Iterator[Event]:
        """Work through the jobs; what another live driver was first to claim is left to it, and its end told."""
        parts = {part.run.run_id: part for job in jobs for part in job.jobs}
        self._lease.claim(parts)
        left = self._lease.elsewhere(parts)
        done = set(left)
        for event in _ended(parts):  # since the plan was made
            done.add(event.run_id)
            left.pop(event.run_id, None)
            yield event
        if mine := _without(jobs, done):
            yield from execute(mine)
        if left:
            others = ", ".join(sorted({f"{holder.experiment} ({holder})" for holder in left.values()}))
            self._observer.note(f"{len(left)} of these runs are being trained for {others}; waiting for them")
        while left:
            for event in _ended({run_id: parts[run_id] for run_id in left}):
                del left[event.run_id]
                yield event
            still = self._lease.elsewhere(left)
            free = left.keys() - still.keys()
            for event in _ended({run_id: parts[run_id] for run_id in free}):  # at the last moment
                free.discard(event.run_id)
                yield event
            if free:
                yield from execute(_without(jobs, parts.keys() - free))
            left = still
            time.sleep(LOOK_SECONDS if left else 0)


@contextmanager
def driving(experiment: str, home: Home, observer: Observer, *, wait: bool) -> Iterator[Owner]:
    """Be the one driver of the experiment, after whoever is it now.

    Raises `UserError` where there is one and `wait` is False, and where the disk is full; `Interrupted` after Ctrl-C
    and SIGTERM.
    """
    owner = None
    with stopping() as stop:
        try:
            lease = _take(experiment, home, observer, wait)
            try:
                elsewhere = None if home.storage is None else _take_in_storage(lease, home, observer, wait)
                for folder in (home.root, home.phases, home.experiment(experiment)):
                    clear_temporaries(folder, older=LEFT_SECONDS)
                try:
                    owner = Owner(lease, stop, observer)
                    yield owner
                finally:
                    if elsewhere is not None:
                        elsewhere.release()
            finally:
                lease.release()
        except (KeyboardInterrupt, SystemExit) as error:  # Ray's own handler, while it starts, leaves by SystemExit
            stop.caught()
            if isinstance(error, Interrupted):
                raise
            number = stop.signal or (signal.SIGTERM if isinstance(error, SystemExit) else signal.SIGINT)
            how_far = "" if owner is None else str(owner.counts)
            raise Interrupted(f"interrupted{how_far}; the same command resumes", 128 + number) from None
        except OSError as error:
            if not is_full(error):
                raise
            raise UserError(no_space(error, str(home.root))) from None


def _take(experiment: str, home: Home, observer: Observer, wait: bool) -> Lease:
    """The lease of the home folder, once nobody else has it."""
    folder = home.experiment(experiment)
    told, pause = None, 0.05
    try:
        while True:
            try:
                lease, holder, why = take(folder, experiment)
            except FileNotFoundError:
                continue  # the folder went with a driver that had nothing to write there
            except OSError as error:
                if is_full(error):
                    raise
                where, why = error.filename or folder, error.strerror
                raise UserError(f"{where} cannot be written ({why}); choose another --home") from None
            if lease is not None:
                if holder is not None:
                    observer.note(f"{experiment} was left by {holder}: {why}; taken over")
                elif told is not None:
                    observer.note(f"process {told.pid} has ended; going on with what it has left")
                return lease
            if holder is not None:
                _meet(experiment, holder, observer, wait, told is not None and told.token == holder.token)
                told = holder
                began = time.monotonic()
                observer.watching(standing(home, experiment))
                pause = max(LOOK_SECONDS, 10 * (time.monotonic() - began))  # a long ledger takes a while to read
            time.sleep(pause)
    except KeyboardInterrupt:
        if told is None:
            raise
        raise Interrupted(f"{experiment} goes on in {told}") from None


def _meet(experiment: str, holder: object, observer: Observer, wait: bool, known: bool) -> None:
    """Say who drives the experiment, once; `UserError` where nobody wants to wait."""
    clock = getattr(holder, "clock", "")
    who = f"{experiment} is being run by {holder} since {clock}"
    if not wait:
        raise UserError(f"{who}; without --no-wait this command watches it and goes on with what is left")
    if not known:
        observer.note(f"{who}; watching it, Ctrl-C leaves it alone")


def _take_in_storage(lease: Lease, home: Home, observer: Observer, wait: bool) -> StorageLease:
    """The same among drivers whose homes are apart and have a storage in common."""
    assert home.storage is not None
    storage = Storage(home.storage)
    storage.check()
    mine, told = StorageLease(storage, lease.holder), None
    try:
        while (holder := mine.take()) is not None:
            _meet(lease.holder.experiment, holder, observer, wait, told is not None and told.token == holder.token)
            told = holder
            time.sleep(LOOK_SECONDS)
    except BaseException:
        mine.release()
        raise
    return mine


def _ended(parts: Mapping[str, Job]) -> Iterator[RunEnded]:
    """Those of the runs that have a result by now, whoever has trained them."""
    for run_id, part in parts.items():
        record = read_record(part.folder)
        if record is not None and record.status != "failed":
            yield RunEnded(run_id, labelled(record, part.run))


def _without(jobs: Sequence[Job | Batched], runs: set[str]) -> list[Job | Batched]:
    """The jobs without some of their runs."""
    if not runs:
        return list(jobs)
    left: list[Job | Batched] = []
    for job in jobs:
        kept = tuple(part for part in job.jobs if part.run.run_id not in runs)
        if len(kept) == len(job.jobs):
            left.append(job)
        elif kept:
            left.append(Batched(kept))
    return left
