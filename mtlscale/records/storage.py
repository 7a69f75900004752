"""Shared storage of nodes without a common folder: prepared data, checkpoints and records below one fsspec URL.

`s3://bucket/mtlscale`, `gs://…`, `file:///mnt/…`. Every node keeps its own home folder; a node publishes its files, and
another fetches them when it needs them. A file appears complete: it is written under another name and moved.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

import fsspec

from mtlscale.config import UserError

_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss"}
# Files of a run. The record is listed first and copied last: it marks the other files as complete.
RESULTS = ("record.json", "model.pt", "pictures.png", "predictions.html", "episodes.png")


class Storage:
    """The folder layout of `Home` below a URL."""

    def __init__(self, url: str) -> None:
        """Open the storage of a URL.

        Raises:
            UserError: If fsspec does not know the kind of URL, or lacks its driver.
        """
        self.url = url
        try:
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UserError(f"storage {url}: {error}".splitlines()[0]) from None
        self._root = str(root).rstrip("/")
        kinds = self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,)
        self._has_folders = _OBJECT_STORES.isdisjoint(kinds)

    def check(self) -> None:
        """Raise `UserError` if this machine cannot write and read in the storage."""
        mark = f".probe-{uuid.uuid4().hex}"
        try:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, mark)
                file.write_text(mark)
                self.put(file, mark)
                readable = self._fs.cat_file(self._at(mark)).decode() == mark
            self.remove(mark)
        except Exception as error:  # every driver has errors of its own
            raise UserError(f"storage {self.url}: {type(error).__name__}: {error}".splitlines()[0]) from None

        if not readable:
            raise UserError(f"storage {self.url}: what is written there cannot be read back")

    # -- single files ----------------------------------------------------------------------------------------------

    def put(self, file: Path, key: str) -> None:
        """Store a complete file, in place of an earlier one."""
        target = self._at(key)
        temporary = f"{target}.{uuid.uuid4().hex}"
        self._make_folder_of(target)
        self._fs.put_file(str(file), temporary)
        self._fs.mv(temporary, target)

    def get(self, key: str, file: Path) -> bool:
        """Fetch a complete file, in place of an earlier one; return False if none is stored."""
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        try:
            self._fs.get_file(self._at(key), str(temporary))
            temporary.replace(file)
        except FileNotFoundError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def read(self, key: str) -> bytes | None:
        """Return the stored bytes; None if there are none."""
        try:
            return bytes(self._fs.cat_file(self._at(key)))
        except FileNotFoundError:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Store a few bytes as a complete file, in place of an earlier one."""
        target = self._at(key)
        temporary = f"{target}.{uuid.uuid4().hex}"
        self._make_folder_of(target)
        self._fs.pipe_file(temporary, content)
        self._fs.mv(temporary, target)

    def remove(self, key: str) -> None:
        if self._fs.exists(self._at(key)):
            self._fs.rm_file(self._at(key))

    def exists(self, key: str) -> bool:
        return bool(self._fs.exists(self._at(key)))

    def below(self, key: str) -> list[str]:
        """List the stored files below a key at this moment, relative to it."""
        self._fs.invalidate_cache()
        return [str(path).rsplit(f"/{key}/", 1)[1] for path in self._fs.find(self._at(key))]

    def matching(self, pattern: str) -> list[str]:
        """List the keys that match a pattern; a `*` stands for any text without a slash."""
        parts = len(pattern.split("/"))
        return ["/".join(str(path).split("/")[-parts:]) for path in self._fs.glob(self._at(pattern))]

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
        """Fetch a file, if it is stored, and return a function that stores it again whenever it has changed."""
        self.get(key, file)
        stored = [_state(file)]

        def store() -> None:
            if (state := _state(file)) != stored[0] and state is not None:
                self.put(file, key)
                stored[0] = state

        return store

    def _make_folder_of(self, target: str) -> None:
        """Make the folder of a file. An object store has none: a driver would make the bucket instead."""
        if self._has_folders:
            self._fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)

    def _at(self, key: str) -> str:
        return f"{self._root}/{key}"


def restore(storage: Storage, folders: Iterable[Path]) -> None:
    """Fetch the results of those runs that finished elsewhere."""
    finished_runs = storage.finished()
    for folder in folders:
        if folder.name in finished_runs and not (folder / "record.json").exists():
            storage.fetch_results(folder)


def supplement(storage: Storage, folders: Iterable[Path]) -> None:
    """Store the results of those finished runs that the storage lacks: it may have been away when they ended."""
    stored_runs = storage.finished()
    for folder in folders:
        if folder.name not in stored_runs and (folder / "record.json").exists():
            storage.put_results(folder)


def _state(file: Path) -> int | None:
    return file.stat().st_mtime_ns if file.exists() else None
