"""Leases: one driver at a time for an experiment of a home folder, and no run trained by two.

A second driver of the same experiment watches the first and goes on after it. Drivers of different experiments that
share runs leave each run to the driver that claimed it first, and take it over where that driver ends without it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mtlscale.config import UserError
from mtlscale.execution.events import Event, RunEnded
from mtlscale.execution.observer import Observer
from mtlscale.execution.planning.plan import labelled
from mtlscale.execution.planning.status import experiment_status
from mtlscale.execution.stopping import Interrupted, Stop, stopping
from mtlscale.execution.workers.jobs import Batched, Job
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

LOOK_SECONDS = 1.0  # between two looks at what another driver does
LEFT_SECONDS = 3600.0  # untouched for so long, a file that was being written is nobody's any more


@dataclass
class Counts:
    """The progress of this driver: the total of runs or trials, and the records so far."""

    records: Mapping[str, RunRecord] = field(default_factory=dict)
    total: int = 0
    noun: str = "runs"

    def __str__(self) -> str:
        done_count = sum(record.status != "failed" for record in self.records.values())
        return f": {done_count} of {self.total} {self.noun} are done" if self.total else ""


class Owner:
    """The role of this process as the driver of an experiment."""

    def __init__(self, lease: Lease, stop: Stop, observer: Observer) -> None:
        self._lease, self._stop, self._observer = lease, stop, observer
        self.counts = Counts()

    def check(self) -> None:
        """Raise if this process should not go on."""
        self._stop.check()
        if self._lease.lost is not None:
            name, holder = self._lease.holder.experiment, self._lease.lost
            raise UserError(f"{name} was taken over by {holder}, because this process stood still; it goes on there")

    def claimed_jobs(
        self, jobs: Sequence[Job | Batched], execute: Callable[[Sequence[Job | Batched]], Iterator[Event]]
    ) -> Iterator[Event]:
        """Work through the jobs, except for runs that another live driver claimed first.

        Those are left to it, and their ends are reported.
        """
        parts = {part.run.run_id: part for job in jobs for part in job.jobs}
        self._lease.claim(parts)

        claimed_elsewhere = self._lease.elsewhere(parts)
        skipped_ids = set(claimed_elsewhere)
        for event in _ended(parts):  # ended since the plan was made
            skipped_ids.add(event.run_id)
            claimed_elsewhere.pop(event.run_id, None)
            yield event

        if own_jobs := _without(jobs, skipped_ids):
            yield from execute(own_jobs)

        if claimed_elsewhere:
            holders = ", ".join(sorted({f"{holder.experiment} ({holder})" for holder in claimed_elsewhere.values()}))
            self._observer.note(
                f"{len(claimed_elsewhere)} of these runs are being trained for {holders}; waiting for them"
            )

        while claimed_elsewhere:
            for event in _ended({run_id: parts[run_id] for run_id in claimed_elsewhere}):
                del claimed_elsewhere[event.run_id]
                yield event

            still_claimed = self._lease.elsewhere(claimed_elsewhere)
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
        self._lease.claim(parts)
        elsewhere = set(self._lease.elsewhere(parts))
        ended = list(_ended(parts))
        done = {event.run_id for event in ended} | {run_id for run_id, part in parts.items() if _failed(part, since)}
        return _without([job], elsewhere | done), bool(elsewhere - done), ended

    def claim_nothing(self) -> None:
        """Give back what is claimed."""
        self._lease.claim(())


@contextmanager
def driving(experiment: str, home: Home, observer: Observer, *, wait: bool) -> Iterator[Owner]:
    """Be the one driver of the experiment, after the current driver, if any.

    Raises:
        UserError: If there is a driver and `wait` is False, or if the disk is full.
        Interrupted: After Ctrl-C and SIGTERM.
    """
    owner = None
    with stopping() as stop:
        try:
            lease = _take_lease(experiment, home, observer, wait)

            try:
                storage_lease = None if home.storage is None else _take_in_storage(lease, home, observer, wait)
                for folder in (home.root, home.phases, home.experiment(experiment)):
                    clear_temporaries(folder, older=LEFT_SECONDS)
                try:
                    owner = Owner(lease, stop, observer)
                    yield owner
                finally:
                    if storage_lease is not None:
                        storage_lease.release()
            finally:
                lease.release()
        except (KeyboardInterrupt, SystemExit) as error:  # Ray's own handler, while it starts, leaves by SystemExit
            stop.caught()
            if isinstance(error, Interrupted):
                raise

            number = stop.signal or (signal.SIGTERM if isinstance(error, SystemExit) else signal.SIGINT)
            progress = "" if owner is None else str(owner.counts)
            raise Interrupted(f"interrupted{progress}; the same command resumes", 128 + number) from None
        except OSError as error:
            if not is_full(error):
                raise
            raise UserError(no_space(error, str(home.root))) from None


def _take_lease(experiment: str, home: Home, observer: Observer, wait: bool) -> Lease:
    """Return the lease of the home folder, once nobody else has it."""
    folder = home.experiment(experiment)
    previous_holder, pause = None, 0.05

    try:
        while True:
            try:
                lease, holder, why = take(folder, experiment)
            except FileNotFoundError:
                continue  # a driver that had nothing to write there removed the folder
            except OSError as error:
                if is_full(error):
                    raise
                failed_path, why = error.filename or folder, error.strerror
                raise UserError(f"{failed_path} cannot be written ({why}); choose another --home") from None

            if lease is not None:
                if holder is not None:
                    observer.note(f"{experiment} was left by {holder}: {why}; taken over")
                elif previous_holder is not None:
                    observer.note(f"process {previous_holder.pid} has ended; going on with what it has left")
                return lease

            if holder is not None:
                _meet(
                    experiment,
                    holder,
                    observer,
                    wait,
                    previous_holder is not None and previous_holder.token == holder.token,
                )
                previous_holder = holder
                began = time.monotonic()
                observer.watching(experiment_status(home, experiment))
                pause = max(LOOK_SECONDS, 10 * (time.monotonic() - began))  # a long ledger takes a while to read
            time.sleep(pause)
    except KeyboardInterrupt:
        if previous_holder is None:
            raise
        raise Interrupted(f"{experiment} goes on in {previous_holder}") from None


def _meet(experiment: str, holder: object, observer: Observer, wait: bool, is_known: bool) -> None:
    """Note who drives the experiment, once; raise `UserError` if the caller does not want to wait."""
    clock = getattr(holder, "clock", "")
    description = f"{experiment} is being run by {holder} since {clock}"
    if not wait:
        raise UserError(f"{description}; without --no-wait this command watches it and goes on with what is left")
    if not is_known:
        observer.note(f"{description}; watching it, Ctrl-C leaves it alone")


def _take_in_storage(lease: Lease, home: Home, observer: Observer, wait: bool) -> StorageLease:
    """Return the lease among drivers with separate homes and a common storage, once nobody else has it."""
    assert home.storage is not None
    storage = Storage(home.storage, observer.note)
    storage.check()

    storage_lease, previous_holder = StorageLease(storage, lease.holder, observer.note), None

    try:
        while (holder := storage_lease.take()) is not None:
            _meet(
                lease.holder.experiment,
                holder,
                observer,
                wait,
                previous_holder is not None and previous_holder.token == holder.token,
            )
            previous_holder = holder
            time.sleep(LOOK_SECONDS)
    except BaseException:
        storage_lease.release()
        raise
    return storage_lease


def _ended(parts: Mapping[str, Job]) -> Iterator[RunEnded]:
    """Yield the ends of those runs that have a result by now, whoever has trained them."""
    for run_id, part in parts.items():
        record = read_record(part.folder)
        if record is not None and record.status != "failed":
            yield RunEnded(run_id, labelled(record, part.run))


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
