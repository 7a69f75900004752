"""Ownership: one driver at a time for an experiment of a home folder, and no run trained by two.

A second driver of the same experiment watches the first and goes on after it. Drivers of different experiments that
share runs leave each run to the driver that claimed it first, and take it over where that driver ends without it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from mtlscale.config import UserError
from mtlscale.execution.planning.status import counts_at_start
from mtlscale.execution.sinks import Sinks
from mtlscale.execution.stopping import Interrupted, Stop, stopping
from mtlscale.execution.workers.jobs import Batched, Job
from mtlscale.records import (
    DriverLock,
    Holder,
    Home,
    Storage,
    StorageLease,
    Wanted,
    clear_temporaries,
    is_full,
    no_space,
    read_record,
)
from mtlscale.records.events import RunEnded, RunEvent, Watching

LOOK_SECONDS = 1.0  # between two looks at what another driver does
LEFT_SECONDS = 3600.0  # untouched for so long, a file that was being written is nobody's any more


class Owner:
    """The role of this process as the driver of an experiment."""

    def __init__(self, lock: DriverLock, stop: Stop, told: Sinks) -> None:
        self._lock, self._stop, self._told = lock, stop, told
        self._next_look = 0.0

    def check(self) -> None:
        """Raise if this process should not go on."""
        self._stop.check()
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_SECONDS
        if (holder := self._lock.lost_to()) is not None:
            name = self._lock.holder.experiment
            raise UserError(f"{name} was taken over by {holder}, because the lock here was lost; it goes on there")

    def claimed_jobs(
        self, jobs: Sequence[Job | Batched], execute: Callable[[Sequence[Job | Batched]], Iterator[RunEvent]]
    ) -> Iterator[RunEvent]:
        """Work through the jobs, except for runs that another live driver claimed first.

        Those are left to it, and their ends are reported.
        """
        parts = {part.run.run_id: part for job in jobs for part in job.jobs}
        self._lock.claim(parts)

        claimed_elsewhere = self._lock.elsewhere(parts)
        skipped_ids = set(claimed_elsewhere)
        for event in _ended(parts):  # ended since the plan was made
            skipped_ids.add(event.run_id)
            claimed_elsewhere.pop(event.run_id, None)
            yield event

        if own_jobs := _without(jobs, skipped_ids):
            yield from execute(own_jobs)

        if claimed_elsewhere:
            holders = ", ".join(sorted({f"{holder.experiment} ({holder})" for holder in claimed_elsewhere.values()}))
            self._told.note(f"{len(claimed_elsewhere)} of these runs are being trained for {holders}; waiting for them")

        while claimed_elsewhere:
            for event in _ended({run_id: parts[run_id] for run_id in claimed_elsewhere}):
                del claimed_elsewhere[event.run_id]
                yield event

            still_claimed = self._lock.elsewhere(claimed_elsewhere)
            released_ids = claimed_elsewhere.keys() - still_claimed.keys()
            for event in _ended({run_id: parts[run_id] for run_id in released_ids}):  # ended just now
                released_ids.discard(event.run_id)
                yield event
            if released_ids:
                yield from execute(_without(jobs, parts.keys() - released_ids))
            claimed_elsewhere = still_claimed
            time.sleep(LOOK_SECONDS if claimed_elsewhere else 0)

    def claim_job(self, job: Job | Batched, since: float) -> tuple[list[Job | Batched], bool, list[RunEnded]]:
        """Claim one job alone, as a task of a job array does.

        Args:
            job: The job.
            since: The time of the file system from which on a run's failure counts: it is not tried again.

        Returns:
            What to train; whether other drivers are at some of it; the ends of runs that others have finished.
        """
        parts = {part.run.run_id: part for part in job.jobs}
        self._lock.claim(parts)
        elsewhere = set(self._lock.elsewhere(parts))
        ended = list(_ended(parts))
        done = {event.run_id for event in ended} | {run_id for run_id, part in parts.items() if _failed(part, since)}
        return _without([job], elsewhere | done), bool(elsewhere - done), ended

    def claim_nothing(self) -> None:
        """Give back what is claimed."""
        self._lock.claim(())


@contextmanager
def driving(experiment: str, home: Home, told: Sinks, *, wait: bool) -> Iterator[Owner]:
    """Be the one driver of the experiment, after the current driver, if any.

    Raises:
        UserError: If there is a driver and `wait` is False, if the home cannot be locked, or if the disk is full.
        Interrupted: After Ctrl-C and SIGTERM.
    """
    with stopping() as stop:
        try:
            with ExitStack() as held:
                lock = DriverLock(home.experiment(experiment), experiment)
                held.callback(lock.release)
                _take_lock(lock, home, told, wait)

                if home.storage is not None:
                    storage = Storage(home.storage, told.note)
                    storage.check()
                    storage_lease = StorageLease(storage, lock.holder, told.note, lock.predecessor)
                    held.callback(storage_lease.release)
                    _wait(storage_lease, experiment, told, wait)

                for folder in (home.root, home.phases, home.experiment(experiment)):
                    clear_temporaries(folder, older=LEFT_SECONDS)
                yield Owner(lock, stop, told)
        except (KeyboardInterrupt, SystemExit) as error:  # Ray's own handler, while it starts, leaves by SystemExit
            stop.caught()
            if isinstance(error, Interrupted):
                raise

            number = stop.signal or (signal.SIGTERM if isinstance(error, SystemExit) else signal.SIGINT)
            raise Interrupted("interrupted; the same command resumes", 128 + number) from None
        except OSError as error:
            if not is_full(error):
                raise
            raise UserError(no_space(error, str(home.root))) from None


def _take_lock(lock: DriverLock, home: Home, told: Sinks, wait: bool) -> None:
    """Take the lock of the home folder once nobody else has it, and note what became of who had it."""
    experiment = lock.holder.experiment

    def look() -> None:
        told.take(Watching(experiment, counts_at_start(home, experiment)))

    last_holder = _wait(lock, experiment, told, wait, look)
    if lock.predecessor is not None:
        told.note(f"{experiment} was left by {lock.predecessor}; taken over")
    elif last_holder is not None:
        told.note(f"{last_holder} has ended; going on with what it has left")


def _wait(
    lock: DriverLock | StorageLease,
    experiment: str,
    told: Sinks,
    wait: bool,
    look: Callable[[], None] = lambda: None,
) -> Holder | None:
    """Take a lock once it is free; return its last holder, if there was one."""
    holder = None
    try:
        for holder in _holders(lock, look):
            description = f"{experiment} is being run by {holder} since {holder.clock}"
            if not wait:
                raise UserError(
                    f"{description}; without --no-wait this command watches it and goes on with what is left"
                )
            told.note(f"{description}; watching it, Ctrl-C leaves it alone")
    except KeyboardInterrupt:
        if holder is None:
            raise
        raise Interrupted(f"{experiment} goes on in {holder}") from None
    return holder


def _holders(lock: DriverLock | StorageLease, look: Callable[[], None]) -> Iterator[Holder]:
    """Yield each other process that holds a lock, once, and look at what it does; end when the lock is ours."""
    known_holder = None
    while (holder := lock.take()) is not None:
        if holder != known_holder:
            yield holder
            known_holder = holder

        began = time.monotonic()
        look()
        time.sleep(max(LOOK_SECONDS, 10 * (time.monotonic() - began)))  # a long ledger takes a while to read


def _ended(parts: Mapping[str, Job]) -> Iterator[RunEnded]:
    """Yield the ends of those runs that have a result by now, whoever has trained them."""
    for run_id, part in parts.items():
        record = read_record(part.folder)
        if record is not None and record.status != "failed":
            yield RunEnded(run_id, Wanted.of(part.run).labelled(record))


def _failed(part: Job, since: float) -> bool:
    """Return whether a run has failed since then, whoever has tried it."""
    try:
        return (part.folder / "error.txt").stat().st_mtime >= since
    except FileNotFoundError:
        return False


def _without(jobs: Sequence[Job | Batched], runs: set[str]) -> list[Job | Batched]:
    """Return the jobs without some of their runs."""
    if not runs:
        return list(jobs)
    remaining_jobs: list[Job | Batched] = []
    for job in jobs:
        remaining_parts = tuple(part for part in job.jobs if part.run.run_id not in runs)
        if len(remaining_parts) == len(job.jobs):
            remaining_jobs.append(job)
        elif remaining_parts:
            remaining_jobs.append(Batched(remaining_parts))
    return remaining_jobs
