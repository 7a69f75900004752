"""The file lock of an experiment's driver: one process at a time, from its first to its last moment.

    .lock         locked by the driver; the kernel unlocks it when the process dies, however it dies
    driver.json   host and process of the driver, for messages; where the lock is free, it names one that died
    claim.json    the runs it means to train itself, for drivers of other experiments that share some of them

The lock is that of `flock`, which network file systems pass on to their server. It belongs to the open file, so every
child of `fork` would inherit it and keep it after the driver's death; filelock closes the file in such children, and
`exec` closes it in all others. A lock of `lockf` has no heirs, but is lost as soon as its process closes the file a
second time, as every look at it does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from mtlscale.config import UserError
from mtlscale.records.files import file_time, is_full, write_atomically

DRIVER, CLAIM, LOCK = "driver.json", "claim.json", ".lock"
# Tries, 5 ms apart, that a look of another process at the lock, or a new driver without its file, lasts at most. They
# are no seconds: a busy disk can hold this process up for longer than that between two of them.
TRIES = 200
_NO_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK)


@dataclass(frozen=True)
class Holder:
    """The process that drives an experiment."""

    experiment: str
    host: str
    pid: int  # 0 if it has not said
    since: float  # when it took the lock, seconds since 1970

    @classmethod
    def me(cls, experiment: str) -> Holder:
        return cls(experiment, socket.gethostname(), os.getpid(), time.time())

    @classmethod
    def read(cls, folder: Path) -> Holder | None:
        """Return the process that drives the experiment of a folder, or did until it died; None if none is named."""
        try:
            return cls(**json.loads((folder / DRIVER).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}" if self.pid else "another process"

    @property
    def clock(self) -> str:
        """The wall-clock time since which it has held the lock."""
        local_since = time.localtime(self.since)
        return time.strftime("%H:%M" if time.time() - self.since < 12 * 3600 else "%Y-%m-%d %H:%M", local_since)


class DriverLock:
    """The lock of an experiment, which this process holds from a successful `take` to `release`."""

    def __init__(self, folder: Path, experiment: str) -> None:
        from filelock import FileLock

        self.folder, self.holder = folder, Holder.me(experiment)
        self.predecessor: Holder | None = None  # the driver before, if it died
        self._lock = FileLock(
            folder / LOCK, thread_local=False, fallback_to_soft=False, on_acquired=self._check_in_place
        )

    def take(self) -> Holder | None:
        """Try to become the driver; return None on success, else the process that is.

        Raises:
            UserError: If the folder cannot be written, or its file system has no locks.
        """
        from filelock import Timeout

        tries = 0
        try:
            while True:
                tries += 1
                try:
                    self._lock.acquire(blocking=False)
                    break
                except (FileNotFoundError, FileExistsError):  # a driver with nothing to keep has just removed both
                    if tries >= TRIES:
                        raise
                except Timeout:
                    holder = holder_of(self.folder)
                    if holder is not None and holder.pid:
                        return holder
                    if tries >= TRIES:
                        return holder or Holder(self.folder.name, "", 0, time.time())
                time.sleep(0.005)

            self.predecessor, self.holder = Holder.read(self.folder), Holder.me(self.holder.experiment)
            (self.folder / CLAIM).unlink(missing_ok=True)
            write_atomically(self.folder / DRIVER, json.dumps(asdict(self.holder)).encode())
            return None
        except OSError as error:
            self.release()
            if is_full(error):
                raise
            if error.errno in _NO_LOCKS:
                raise UserError(
                    f"the file system of {self.folder} has no file locks ({error.strerror}), which keep two drivers of "
                    "an experiment apart; choose a --home on another one, with --storage for what machines share"
                ) from None
            path = error.filename or self.folder
            raise UserError(f"{path} cannot be written ({error.strerror}); choose another --home") from None

    def _check_in_place(self, handle: int) -> None:
        """Raise `FileNotFoundError` if the locked file has been removed: a second process could lock the next one."""
        if not os.path.samestat(os.fstat(handle), (self.folder / LOCK).stat()):
            raise FileNotFoundError(errno.ENOENT, "replaced", str(self.folder / LOCK))

    def lost_to(self) -> Holder | None:
        """Return the process that drives the experiment although this one has not released it.

        A file system drops the lock of a machine that does not answer, and a user may remove its file.
        """
        holder = Holder.read(self.folder)
        return None if holder == self.holder else holder

    def release(self) -> None:
        """Release the lock if this process holds it, and remove the folder if it has nothing else to keep."""
        if not self._lock.is_locked:
            return

        try:
            with contextlib.suppress(OSError):
                if self.lost_to() is None:
                    (self.folder / CLAIM).unlink(missing_ok=True)
                    (self.folder / DRIVER).unlink(missing_ok=True)
                    if [path.name for path in self.folder.iterdir()] == [LOCK]:
                        (self.folder / LOCK).unlink()
        finally:
            self._lock.release()

        with contextlib.suppress(OSError):  # something is in there
            self.folder.rmdir()
            self.folder.parent.rmdir()

    def claim(self, runs: Iterable[str]) -> None:
        """Publish the runs that this driver means to train, in place of its earlier claim."""
        path = self.folder / CLAIM
        write_atomically(path, json.dumps(list(runs)).encode())
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
        claim_order = (self.folder / CLAIM).stat().st_mtime_ns, self.folder.name

        for path in self.folder.parent.glob(f"*/{CLAIM}"):
            holder = None if path.parent == self.folder else holder_of(path.parent)
            if holder is None:
                continue

            with contextlib.suppress(OSError, ValueError, TypeError), path.open("rb") as file:
                other_order = os.fstat(file.fileno()).st_mtime_ns, path.parent.name
                if other_order < claim_order:
                    claimed |= dict.fromkeys(wanted_runs.intersection(json.load(file)), holder)
        return claimed


def holder_of(folder: Path) -> Holder | None:
    """Return the live driver of the experiment whose folder this is."""
    try:
        handle = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None

    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: only a driver is in its way, no other look
        fcntl.flock(handle, fcntl.LOCK_UN)  # closing would leave it to a child that another thread forks now
        return None
    except OSError as error:
        is_held = error.errno in (errno.EAGAIN, errno.EACCES)
        unnamed = Holder(folder.name, "", 0, os.fstat(handle).st_mtime)  # which may remove its folder right now
        return (Holder.read(folder) or unnamed) if is_held else None
    finally:
        os.close(handle)
