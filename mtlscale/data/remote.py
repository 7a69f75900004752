"""Sharing of prepared data through a `Storage`, for nodes without a common folder.

A node that lacks a set fetches its manifest and the files that belong to no split. The files of a split are fetched one
after the other when the cache (`mtlscale.data.readers.cache`) first needs its columns, and not kept.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import SPLITS, UserError
from mtlscale.data.format.manifest import MANIFEST, ORIGIN, FileEntry, Manifest, damage, of_split, read_manifest

if TYPE_CHECKING:
    from mtlscale.records import Storage


def publish(storage: Storage, folder: Path) -> None:
    """Store a prepared data set, its manifest last; do nothing if it is stored already."""
    key = key_of(folder)
    if storage.exists(f"{key}/{MANIFEST}"):
        return
    with tempfile.TemporaryDirectory() as temporary, Shards(folder, Path(temporary)) as files:
        for entry in read_manifest(folder).files:
            if (folder / entry.path).exists() or not storage.exists(f"{key}/{entry.path}"):  # or it is stored
                storage.put(files.path(entry), f"{key}/{entry.path}")
    storage.put(folder / MANIFEST, f"{key}/{MANIFEST}")


def fetch(storage: Storage, folder: Path) -> bool:
    """Fetch a prepared data set without its samples, completely or not at all; return False if it is not published."""
    key = key_of(folder)
    if not storage.exists(f"{key}/{MANIFEST}"):
        return False

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        storage.get(f"{key}/{MANIFEST}", temporary / MANIFEST)
        manifest = read_manifest(temporary)
        (temporary / ORIGIN).write_text(storage.url, encoding="utf-8")
        for entry in manifest.files:
            if not any(of_split(entry, split) for split in SPLITS):
                storage.get(f"{key}/{entry.path}", temporary / entry.path)

        problem = damage(temporary, manifest)
        if problem is not None:
            raise UserError(f"storage {storage.url}: {key} is damaged ({problem}); remove it there and prepare it anew")

        temporary.chmod(0o755)
        try:
            temporary.rename(folder)
        except OSError:
            if not (folder / MANIFEST).exists():  # another process of this node was faster
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def fetch_manifests(storage: Storage, name: str, folder: Path) -> Iterator[Path]:
    """Fetch the manifests of all published preparations of a data set, each into its folder below `folder`."""
    for key in storage.matching(f"data/{name}/*/{MANIFEST}"):
        manifest_folder = folder / key.rsplit("/", 2)[1]
        if storage.get(key, manifest_folder / MANIFEST):
            yield manifest_folder


def url_of(storage: str, folder: Path) -> str:
    """Return the URL in a storage of a folder of prepared data."""
    return f"{storage.rstrip('/')}/{key_of(folder)}"


def deliver(url: str, key: str, file: Path, name: str) -> None:
    """Store a file of a prepared data set during its preparation; called by tasks on any node."""
    from mtlscale.records import Storage

    Storage(url).put(file, f"{key}/{name}")


def origin_of(folder: Path) -> str | None:
    """Return the URL of a set's files in the storage it was fetched from; None for a set prepared here."""
    mark = folder / ORIGIN
    return url_of(mark.read_text(encoding="utf-8"), folder) if mark.exists() else None


def elsewhere(folder: Path, manifest: Manifest, split: str) -> bool:
    """Return whether files of a split are only in a storage."""
    return (folder / ORIGIN).exists() and not all(
        (folder / entry.path).exists() for entry in manifest.files if of_split(entry, split)
    )


class Shards:
    """The files of a prepared data set; stored ones are fetched below `place`, one at a time."""

    def __init__(self, folder: Path, place: Path) -> None:
        self._folder, self._file = folder, place / "shard.parquet"
        self._fetched: str | None = None

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)

    def path(self, entry: FileEntry) -> Path:
        """Return a path at which the file can be read until the next call.

        Raises:
            UserError: If the file is damaged in the storage.
        """
        if (self._folder / entry.path).exists():
            return self._folder / entry.path
        if self._fetched != entry.path:
            self._fetch(entry)
            self._fetched = entry.path
        return self._file

    def _fetch(self, entry: FileEntry) -> None:
        from mtlscale.records import Storage

        storage = Storage((self._folder / ORIGIN).read_text(encoding="utf-8"))
        self._file.unlink(missing_ok=True)
        if not storage.get(f"{key_of(self._folder)}/{entry.path}", self._file):
            problem = "it is gone"
        elif sha256_of(self._file) != entry.sha256:
            problem = "its bytes are not those that were written"
        else:
            return

        raise UserError(
            f"storage {storage.url}: {key_of(self._folder)}/{entry.path} is damaged ({problem}); remove "
            f"{key_of(self._folder)} there and prepare it anew"
        )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key_of(folder: Path) -> str:
    """Return the key of a prepared data set in a storage."""
    return f"data/{folder.parent.name}/{folder.name}"
