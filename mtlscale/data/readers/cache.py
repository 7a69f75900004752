"""Cache of prepared data as uncompressed columns that processes map into memory: one copy for a whole node.

`$MTLSCALE_CACHE`, or `cache` in the home folder, holds `<fingerprint>/<split>/<stream>/<column>.npy`. A set is written
from the Parquet files a few rows at a time when it is first needed, completely or not at all; files that are only in a
storage are fetched for it and not kept. A process that has a set open holds a shared lock on `<fingerprint>.lock`,
which the kernel releases if the process dies; one process at a time writes or makes room, holding `.lock`. With
`$MTLSCALE_CACHE_GB`, or on a full disk, the least recently used sets that no process has open are removed.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.config import UserError
from mtlscale.data.format.arrays import columns_of, write_arrays
from mtlscale.data.format.manifest import of_split
from mtlscale.data.remote import Shards, elsewhere, sha256_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mtlscale.data.format.manifest import Manifest

FOLDER, LIMIT = "MTLSCALE_CACHE", "MTLSCALE_CACHE_GB"  # environment variables: the cache's folder, its limit in GiB
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_HEADER = 128  # bytes of a file before its numbers


def cache_folder(folder: Path) -> Path:
    """Return the cache folder for the prepared data in a folder."""
    named = os.environ.get(FOLDER)
    if named:
        return Path(named).absolute()
    folder = folder.absolute()
    return folder.parents[2] / "cache" if folder.parent.parent.name == "data" else folder.parent / "cache"


def cache_limit() -> float | None:
    """Return the bytes that all sets of the cache may take; None if the disk is the limit."""
    text = os.environ.get(LIMIT)
    if not text:
        return None

    try:
        gib = float(text)
    except ValueError:
        gib = -1.0
    if not gib > 0:
        raise UserError(f"{LIMIT}={text} is no number of GiB above 0; set it to one, or drop it")
    return gib * 2**30


def cache_room(folder: Path) -> float:
    """Return the bytes that the data in a folder may take of the cache if all other sets are removed."""
    existing, limit = cache_folder(folder), cache_limit()
    while not existing.exists():
        existing = existing.parent
    size = float(shutil.disk_usage(existing).total)
    return size if limit is None else min(size, limit)


def in_words(size: float) -> str:
    """Return a number of bytes with its unit, such as 1.5 GiB."""
    for unit, name in ((2**30, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 2**10:.1f} KiB"


def verify(folder: Path, manifest: Manifest, split: str) -> None:
    """Check that the files of a split are those the manifest records, byte for byte.

    They are read once per node, and again when a file has changed.

    Raises:
        UserError: For the first file that differs.
    """
    entries = [entry for entry in manifest.files if of_split(entry, split)]
    state = hashlib.sha256(str(folder.resolve()).encode())
    for entry in entries:
        status = (folder / entry.path).stat()
        state.update(f"{entry.path}\0{entry.sha256}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())

    mark = cache_folder(folder) / ".verified" / f"{split}-{state.hexdigest()[:32]}"
    if mark.exists():
        return
    for entry in entries:
        digest = sha256_of(folder / entry.path)
        if digest != entry.sha256:
            raise UserError(
                f"{folder / entry.path} is damaged: its bytes are not those that were written (sha256 {digest[:12]}… "
                f"instead of {entry.sha256[:12]}…); delete {folder} and prepare again"
            )

    with suppress(OSError):  # without a writable cache the files are checked each time
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()


class CachedSet:
    """The columns of one prepared data set, protected from removal as long as this object lives."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self._source, self._manifest = folder, manifest
        self.root, self._limit = cache_folder(folder), cache_limit()
        self._key = manifest.fingerprint[:32]
        with _storage_errors(self.root, "the cache"):
            self.root.mkdir(parents=True, exist_ok=True)
            self._lock = _Lock(self.root / f"{self._key}.lock", fcntl.LOCK_SH)
            os.utime(self._lock.path)  # when it was last used

    def columns(self, split: str, stream: str) -> dict[str, NDArray[Any]]:
        """Return column name -> its rows [N] or [N, numbers of a sample], memory-mapped and read-only."""
        folder = self.root / self._key / split / stream
        if not folder.is_dir():
            with _storage_errors(self.root, "the cache"), _Lock(self.root / ".lock", fcntl.LOCK_EX):
                if not folder.is_dir():  # another process may have written it
                    self._write(folder, split, stream)
        return {path.name.removesuffix(".npy"): _mapped(path) for path in sorted(folder.glob("*.npy"))}

    def _write(self, folder: Path, split: str, stream: str) -> None:
        """Write all columns of a stream to a temporary folder, then give the folder its name."""
        if not elsewhere(self._source, self._manifest, split):  # fetched files are checked on arrival
            verify(self._source, self._manifest, split)

        for unfinished in self.root.glob(".writing-*"):  # its writer died: there is only one at a time
            shutil.rmtree(unfinished, ignore_errors=True)

        name, shards = f"{split}/{stream}", self._manifest.shards(split, stream)
        temporary, size = Path(tempfile.mkdtemp(dir=self.root, prefix=".writing-")), shards[0].bytes

        try:
            with Shards(self._source, temporary) as files:
                columns = columns_of(files.path(shards[0]), self._manifest.types)
                size = sum(column.row_bytes for column in columns) * sum(shard.rows for shard in shards)
                if any(column.encoded for column in columns):
                    size += sum(shard.bytes for shard in shards)
                self._make_room(size, name)
                write_arrays(map(files.path, shards), columns, temporary)
            folder.parent.mkdir(parents=True, exist_ok=True)
            temporary.chmod(0o755)
            temporary.rename(folder)
        except OSError as error:
            if error.errno not in FULL:
                raise
            raise UserError(
                f"no space left below {self.root} ({error.strerror}) for {name} of {self._manifest.name}, "
                f"{in_words(size)}; free some, or name a larger disk by {FOLDER}"
            ) from None
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _make_room(self, needed: int, name: str) -> None:
        """Remove sets that no process has open, the least recently used first, until the needed bytes fit."""
        need = f"{name} of {self._manifest.name}, which takes {in_words(needed)}"

        if self._limit is not None and needed > self._limit:
            raise UserError(
                f"the cache is limited to {in_words(self._limit)} ({LIMIT}), too small for {need}; raise the limit"
            )

        sets = [path for path in self.root.iterdir() if path.is_dir() and path.name[0] != "."]
        used = sum(map(_size, sets)) if self._limit is not None else 0
        sets = [path for path in sets if path.name != self._key]
        sets.sort(key=lambda path: _used_at(self.root / f"{path.name}.lock"))

        while (limited := self._limit is not None and used + needed > self._limit) or self._free() < needed:
            if not sets:
                room = f"limited to {in_words(self._limit or 0)} by {LIMIT}"
                room = room if limited else f"{in_words(self._free())} free"
                raise UserError(
                    f"no room in the cache {self.root} ({room}, the sets there are in use) for {need}; raise the limit "
                    f"or name a larger disk by {FOLDER}"
                )
            oldest = sets.pop(0)
            size = _size(oldest) if self._limit is not None else 0
            if _remove_unused(oldest, self.root / f"{oldest.name}.lock"):
                used -= size

    def _free(self) -> int:
        return shutil.disk_usage(self.root).free


def _mapped(path: Path) -> NDArray[Any]:
    import numpy as np

    mode: Any = "r" if path.stat().st_size > _HEADER else None  # an empty array cannot be mapped
    array: NDArray[Any] = np.load(path, mmap_mode=mode, allow_pickle=False)
    return array


class _Lock:
    """The lock that the kernel releases when this process ends or this object is deleted."""

    def __init__(self, path: Path, kind: int) -> None:
        self.path, self._handle = path, -1
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._handle, kind)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def __enter__(self) -> _Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()


def _remove_unused(cache_folder: Path, lock: Path) -> bool:
    try:
        with _Lock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(cache_folder, ignore_errors=True)
            return True
    except BlockingIOError:
        return False


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.npy"))


def _used_at(lock: Path) -> float:
    return lock.stat().st_mtime if lock.exists() else 0.0


@contextmanager
def _storage_errors(root: Path, task_text: str) -> Iterator[None]:
    """Turn the error of an unwritable folder or a full disk into one line."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL or isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
            raise UserError(
                f"{task_text} {root} cannot be written ({error.strerror}); name another place by {FOLDER}"
            ) from None
        raise
