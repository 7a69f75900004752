"""Shared storage of nodes without a common folder: prepared data, checkpoints and records below one fsspec URL.

`s3://bucket/mtlscale`, `gs://…`, `file:///mnt/…`. Every node keeps its own home folder; a node publishes its files, and
another fetches them when it needs them. A file appears complete: it is written under another name and moved. A storage
that does not answer is waited for.
"""

from __future__ import annotations

import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import fsspec

from mtlscale.config import UserError, without_secrets
from mtlscale.records.files import is_full
from mtlscale.records.home import Home
from mtlscale.records.ledger import Ledger
from mtlscale.records.record import EPOCHS

T = TypeVar("T")
PATIENCE_SECONDS = 600.0
_NAMED = 5  # of the runs that a storage lacks
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 15.0  # seconds between two attempts
_DRIVERS = ("aiobotocore.", "aiohttp.", "azure.", "botocore.", "fsspec.", "gcsfs.", "google.", "requests.", "urllib3.")
_FINAL = (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)

_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss"}
# Files of a run. The record is listed first and copied last: it marks the other files as complete.
RESULTS = ("record.json", EPOCHS, "model.pt", "pictures.png", "predictions.html", "episodes.png")


class Storage:
    """The folder layout of `Home` below a URL."""

    def __init__(
        self, url: str, tell: Callable[[str], None] = lambda text: None, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Open the storage of a URL.

        Args:
            tell: Receives a line when the storage is waited for, and when it is back.
            patience: Seconds for which a storage that does not answer is waited for.

        Raises:
            UserError: If fsspec does not know the kind of URL, or lacks its driver.
        """
        self.url, self._tell, self._patience = url, tell, patience
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UserError(f"storage {url}: {error}".splitlines()[0]) from None
        self._root = str(root).rstrip("/")
        kinds = self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,)
        self._has_folders = _OBJECT_STORES.isdisjoint(kinds)

    def impatient(self) -> Storage:
        """Return the same storage for callers that cannot wait: what its driver raises comes at once."""
        return Storage(self.url, patience=0)

    def check(self) -> None:
        """Raise `UserError` if this machine cannot write and read in the storage now."""
        storage = self.impatient()
        mark = f".probe-{uuid.uuid4().hex}"
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, mark)
                file.write_text(mark)
                storage.put(file, mark)
                readable = storage.read(mark) == mark.encode()
            storage.remove(mark)
        except _NoBucketError as error:
            raise UserError(f"storage {self.url}: {error}") from None
        except Exception as error:  # every driver has errors of its own
            raise UserError(f"storage {self.url}: {type(error).__name__}: {error}".splitlines()[0]) from None

        if not readable:
            raise UserError(f"storage {self.url}: what is written there cannot be read back")

    # -- single files ----------------------------------------------------------------------------------------------

    def put(self, file: Path, key: str) -> None:
        """Store a complete file, in place of an earlier one."""
        self._store(key, lambda temporary: self._fs.put_file(str(file), temporary))

    def write(self, key: str, content: bytes) -> None:
        """Store a few bytes as a complete file, in place of an earlier one."""
        self._store(key, lambda temporary: self._fs.pipe_file(temporary, content))

    def _store(self, key: str, write: Callable[[str], None]) -> None:
        target = self._at(key)

        def attempt() -> None:
            temporary = f"{target}.{uuid.uuid4().hex}"
            try:
                if self._has_folders:  # an object store has none: its driver would make the bucket instead
                    self._fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
                write(temporary)
                self._fs.mv(temporary, target)
            except FileNotFoundError:
                if self._has_folders:
                    raise
                bucket = self._root.partition("/")[0]
                raise _NoBucketError(f"there is no bucket {bucket}; create it, or correct its name") from None

        self._patiently(attempt)

    def get(self, key: str, file: Path) -> bool:
        """Fetch a complete file, in place of an earlier one; return False if none is stored."""
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            self._patiently(lambda: self._fs.get_file(self._at(key), str(temporary)))
            temporary.replace(file)
        except FileNotFoundError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def read(self, key: str) -> bytes | None:
        """Return the stored bytes; None if there are none."""
        try:
            return bytes(self._patiently(lambda: self._fs.cat_file(self._at(key))))
        except FileNotFoundError:
            return None

    def remove(self, key: str) -> None:
        def attempt() -> None:
            if self._fs.exists(self._at(key)):
                self._fs.rm_file(self._at(key))

        self._patiently(attempt)

    def exists(self, key: str) -> bool:
        return self._patiently(lambda: bool(self._fs.exists(self._at(key))))

    def below(self, key: str) -> list[str]:
        """List the stored files below a key at this moment, relative to it."""
        self._fs.invalidate_cache()
        paths = self._patiently(lambda: self._fs.find(self._at(key)))
        return [str(path).rsplit(f"/{key}/", 1)[1] for path in paths]

    def matching(self, pattern: str) -> list[str]:
        """List the keys that match a pattern; a `*` stands for any text without a slash."""
        parts = len(pattern.split("/"))
        paths = self._patiently(lambda: self._fs.glob(self._at(pattern)))
        return ["/".join(str(path).split("/")[-parts:]) for path in paths]

    def _patiently(self, attempt: Callable[[], T]) -> T:
        """Return an attempt's result; repeat the attempt while the storage is away, for `_patience` seconds at most."""
        began, pause = time.monotonic(), _FIRST_PAUSE
        waited = False
        while True:
            try:
                result = attempt()
            except Exception as error:
                if self._patience <= 0 or not _is_outage(error):
                    raise
                reason = _first_line(error)
                if time.monotonic() - began + pause > self._patience:
                    raise UserError(
                        f"storage {self.url} has not answered for {_minutes(self._patience)} ({reason}); once it does, "
                        "the same command goes on"
                    ) from None
                if not waited:
                    limit = _minutes(self._patience)
                    self._tell(f"storage {self.url} does not answer ({reason}); waiting for it, up to {limit}")
                waited = True
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                if waited:
                    self._tell(f"storage {self.url} answers again, after {time.monotonic() - began:.0f} s")
                return result

    # -- runs ------------------------------------------------------------------------------------------------------

    def finished(self) -> set[str]:
        """Return the ids of the runs whose records are stored."""
        return {key.rsplit("/", 2)[1] for key in self.matching("runs/*/record.json")}

    def fetch_results(self, folder: Path) -> None:
        """Fetch the results of a finished run, the record last."""
        for name in reversed(RESULTS):
            self.get(f"runs/{folder.name}/{name}", folder / name)

    def put_results(self, folder: Path) -> None:
        """Store the results of a finished run, the record last, and remove its checkpoint."""
        for name in reversed(RESULTS):
            if (folder / name).exists():
                self.put(folder / name, f"runs/{folder.name}/{name}")
        self.remove(f"runs/{folder.name}/checkpoint.pt")

    def checkpoints(self, folder: Path) -> Callable[[], None]:
        """Call `follow` for a run's checkpoint."""
        return self.follow(folder / "checkpoint.pt", f"runs/{folder.name}/checkpoint.pt")

    def follow(self, file: Path, key: str) -> Callable[[], None]:
        """Fetch a file, if it is stored, and return a function that stores it again whenever it has changed.

        The function does not wait for a storage that is away: its next call stores the file.
        """
        self.get(key, file)
        stored, impatient = [_state(file)], self.impatient()

        def store() -> None:
            if (state := _state(file)) != stored[0] and state is not None:
                try:
                    impatient.put(file, key)
                except Exception as error:
                    if not _is_outage(error):
                        raise
                else:
                    stored[0] = state

        return store

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"


class _NoBucketError(ConnectionError):
    """The bucket is not there: its name is wrong, or a store that was away is not yet what it was."""


def _is_outage(error: Exception) -> bool:
    """Return whether an error may pass: the store or the way to it, not what was asked of it."""
    if is_full(error) or isinstance(error, _FINAL):
        return False
    name = type(error).__name__
    is_drivers = type(error).__module__.startswith(_DRIVERS) and "Credential" not in name and "Validation" not in name
    return isinstance(error, OSError) or is_drivers


def _first_line(error: Exception) -> str:
    return next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)[:200]


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else f"{seconds:.0f} s"


def restore(storage: Storage, folders: Iterable[Path]) -> None:
    """Fetch the results of those runs that finished elsewhere."""
    finished_runs = storage.finished()
    for folder in folders:
        if folder.name in finished_runs and not (folder / "record.json").exists():
            storage.fetch_results(folder)


def supplement(storage: Storage, folders: Iterable[Path]) -> list[str]:
    """Store the results of those finished runs that the storage lacks: it may have been away when they ended.

    Returns:
        The ids of those whose results are not on this machine either.
    """
    stored_runs, lost = storage.finished(), []
    for folder in folders:
        if folder.name not in stored_runs:
            if (folder / "record.json").exists():
                storage.put_results(folder)
            else:
                lost.append(folder.name)
    return lost


def complete(home: Home, ledgers: Iterable[Ledger], note: Callable[[str], None]) -> None:
    """Store what the home's storage lacks of the runs that have ended: it may have been away before."""
    if home.storage is None:
        return
    rows = (record for ledger in ledgers for record in ledger.latest().values())
    run_ids = {record.run_id for record in rows if record.status != "failed"}
    lost = supplement(Storage(home.storage, note), map(home.run, sorted(run_ids)))
    if lost:
        named = ", ".join(lost[:_NAMED]) + ("" if len(lost) <= _NAMED else ", …")
        url = without_secrets(home.storage)
        note(f"{len(lost)} of {len(run_ids)} runs are neither in {url} nor in this home: {named}")


def _state(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None
