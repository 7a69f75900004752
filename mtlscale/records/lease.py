"""The lock file (lease) of an experiment's driver: one process at a time, with a heartbeat.

    lease.json    host and process of the driver; touched every few seconds, removed at its end
    claim.json    the runs it means to train itself, for drivers of other experiments that share some of them
    .lease.lock   locked by whoever reads the lease in order to take it

The lock is held for milliseconds and the lease says who drives: a network share may keep the lock of a lost machine
for ever, so no driver holds one while it works.
Ages are differences between times the file system has given, so the clocks of two machines do not have to agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.records.files import file_time, write_atomically

if TYPE_CHECKING:
    from filelock import FileLock

LEASE, CLAIM, LOCK = "lease.json", "claim.json", ".lease.lock"
LOCK_SECONDS = 1.0  # for another process that reads the lease
BEAT_SECONDS = 5.0  # between two heartbeats
LOST_SECONDS = 60.0  # without a heartbeat, after which a driver that cannot be inspected counts as dead


@dataclass(frozen=True)
class Holder:
    """The process that drives an experiment."""

    experiment: str
    host: str
    space: str  # machine and process namespace, within which the process id is unique
    pid: int
    started: float  # start of the process, seconds since 1970
    since: float  # when it took the lease, by the clock of the file system
    token: str

    @classmethod
    def me(cls, experiment: str, since: float) -> Holder:
        import psutil

        started = psutil.Process().create_time()
        return cls(experiment, socket.gethostname(), _space(), os.getpid(), started, since, uuid.uuid4().hex)

    @classmethod
    def read(cls, text: bytes | str) -> Holder | None:
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def dead(self, silent: float) -> str | None:
        """Return the reason why the process counts as dead, or None if it does not.

        Args:
            silent: Seconds since its last heartbeat.
        """
        if self.space == _space() and self.host == socket.gethostname():
            return f"process {self.pid} is gone" if self._gone(silent) else None
        return f"{self.host} has given no sign of life for {silent:.0f} s" if silent > LOST_SECONDS else None

    def _gone(self, silent: float) -> bool:
        import psutil

        try:
            process = psutil.Process(self.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
            # Another start time means another process with the same id, unless the machine's clock was set in between.
            return abs(process.create_time() - self.started) > 1 and silent > 3 * BEAT_SECONDS
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return silent > LOST_SECONDS

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @property
    def clock(self) -> str:
        """The wall-clock time since which it has held the lease."""
        local_since = time.localtime(self.since)
        return time.strftime("%H:%M" if time.time() - self.since < 12 * 3600 else "%Y-%m-%d %H:%M", local_since)


class Lease:
    """The lease that this process holds on an experiment, until `release`."""

    def __init__(self, folder: Path, holder: Holder) -> None:
        self.folder, self.holder = folder, holder
        self.lost: Holder | None = None  # the driver that took it over after this one stood still too long
        self._stop_event = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop_event.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):  # a network share may be away for a moment
                holder, _ = _read_lease(self.folder)
                if holder is not None and holder.token != self.holder.token:
                    self.lost = holder
                    return
                os.utime(self.folder / LEASE)

    def release(self) -> None:
        self._stop_event.set()
        self._thread.join()
        with contextlib.suppress(OSError):
            holder, _ = _read_lease(self.folder)
            if holder is not None and holder.token == self.holder.token:
                (self.folder / CLAIM).unlink(missing_ok=True)
                (self.folder / LEASE).unlink(missing_ok=True)
                _remove_if_unused(self.folder)

    def claim(self, runs: Iterable[str]) -> None:
        """Publish the runs that this driver means to train, in place of its earlier claim."""
        path = self.folder / CLAIM
        write_atomically(path, json.dumps({"token": self.holder.token, "runs": list(runs)}).encode())
        os.utime(path)  # its time is later than the moment when other drivers could see it
        claim_time = path.stat().st_mtime_ns
        while file_time(self.folder) <= claim_time:  # a claim that is still invisible now gets a later time
            time.sleep(0.005)

    def elsewhere(self, runs: Iterable[str]) -> dict[str, Holder]:
        """Return run_id -> driver for the given runs that another live driver has claimed earlier.

        Only drivers of the same home are considered.
        """
        wanted_runs = set(runs)
        claimed: dict[str, Holder] = {}
        claim_order = (self.folder / CLAIM).stat().st_mtime_ns, self.holder.token

        for path in self.folder.parent.glob(f"*/{CLAIM}"):
            if path.parent == self.folder:
                continue
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                holder, silent = _holder_and_age(path.parent)
                if holder is None or holder.dead(silent) is not None:
                    continue

                with path.open("rb") as file:
                    other_order = os.fstat(file.fileno()).st_mtime_ns, holder.token
                    claim = json.load(file)
                if claim["token"] == holder.token and other_order < claim_order:
                    claimed |= dict.fromkeys(wanted_runs.intersection(claim["runs"]), holder)
        return claimed


def take(folder: Path, experiment: str) -> tuple[Lease | None, Holder | None, str | None]:
    """Try once to become the driver of the experiment whose folder this is.

    Returns:
        (lease, previous driver that it was taken over from, reason), or (None, current driver, None). If there is
            neither a lease nor a driver, try again.
    """
    from filelock import Timeout

    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(folder):
            holder, silent = _holder_and_age(folder)
            reason = None if holder is None else holder.dead(silent)
            if holder is not None and reason is None:
                return None, holder, None

            me = Holder.me(experiment, file_time(folder) / 1e9)
            write_atomically(folder / LEASE, json.dumps(asdict(me)).encode())
            return Lease(folder, me), holder, reason
    except Timeout:
        return None, None, None


def holder_of(folder: Path) -> Holder | None:
    """Return the live driver of the experiment whose folder this is."""
    with contextlib.suppress(OSError):
        holder, silent = _holder_and_age(folder)
        if holder is not None and holder.dead(silent) is None:
            return holder
    return None


def _locked(folder: Path) -> FileLock:
    """Return the lock on an experiment's lease, to be entered; it raises filelock's `Timeout` if another has it."""
    from filelock import FileLock

    return FileLock(folder / LOCK, timeout=LOCK_SECONDS)


def _remove_if_unused(folder: Path) -> None:
    """Remove the folder of an experiment, and the one that it lies in, if neither has left anything there."""
    with _locked(folder):
        if [path.name for path in folder.iterdir()] == [LOCK]:
            (folder / LOCK).unlink()
            folder.rmdir()
            folder.parent.rmdir()


def _read_lease(folder: Path) -> tuple[Holder | None, int]:
    """Return the lease's holder, None if unreadable, and when it was touched; raise `FileNotFoundError` without one."""
    with (folder / LEASE).open("rb") as file:  # opened anew each time, so that network shares refresh it
        return Holder.read(file.read()), os.fstat(file.fileno()).st_mtime_ns


def _holder_and_age(folder: Path) -> tuple[Holder | None, float]:
    """Return the lease's holder and the seconds since its last heartbeat; (None, 0.0) without a lease."""
    try:
        holder, touched = _read_lease(folder)
    except FileNotFoundError:
        return None, 0.0
    return holder, (file_time(folder) - touched) / 1e9


def _space() -> str:
    """Return an identifier of machine and process namespace, as containers with the same host name may differ in it."""
    identifiers = []
    with contextlib.suppress(OSError):
        identifiers.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        identifiers.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(identifiers)
