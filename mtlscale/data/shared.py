"""Prepared data that nodes without a common folder share, in a `Storage`.

A node that lacks a set fetches its manifest and what belongs to no split; the files of a split are fetched one after
the other when the cache (`mtlscale.data.cache`) first wants its columns, and not kept.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.data.manifest import MANIFEST, ORIGIN, FileEntry, Manifest, damage, of_split, read_manifest
from mtlscale.spec import SPLITS, UserError

if TYPE_CHECKING:
    from mtlscale.records import Storage


def publish(storage: Storage, folder: Path) -> None:
    """Store a prepared data set, its manifest last; nothing where it is there already."""
    key = key_of(folder)
    if storage.exists(f"{key}/{MANIFEST}"):
        return
    with tempfile.TemporaryDirectory() as place, Shards(folder, Path(place)) as files:
        for entry in read_manifest(folder).files:
            if (folder / entry.path).exists() or not storage.exists(f"{key}/{entry.path}"):  # else its writer stored it
                storage.put(files.path(entry), f"{key}/{entry.path}")
    storage.put(folder / MANIFEST, f"{key}/{MANIFEST}")


def fetch(storage: Storage, folder: Path) -> bool:
    """Fetch what comes before the samples of a prepared data set, whole or not at all; False where nobody has published
    it."""
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
    """Fetch the manifests of all published preparations of a data set, each into its folder below this one."""
    for key in storage.matching(f"data/{name}/*/{MANIFEST}"):
        place = folder / key.rsplit("/", 2)[1]
        if storage.get(key, place / MANIFEST):
            yield place


def url_of(storage: str, folder: Path) -> str:
    """Where a storage has what lies in a folder of prepared data."""
    return f"{storage.rstrip('/')}/{key_of(folder)}"


def deliver(url: str, key: str, file: Path, name: str) -> None:
    """Store a file of a prepared data set while it is prepared: for tasks, wherever they are."""
    from mtlscale.records import Storage

    Storage(url).put(file, f"{key}/{name}")


def origin_of(folder: Path) -> str | None:
    """Where the storage that a set was fetched from has its files; None for one prepared here."""
    mark = folder / ORIGIN
    return url_of(mark.read_text(encoding="utf-8"), folder) if mark.exists() else None


def elsewhere(folder: Path, manifest: Manifest, split: str) -> bool:
    """Whether files of a split are in a storage alone."""
    return (folder / ORIGIN).exists() and not all(
        (folder / entry.path).exists() for entry in manifest.files if of_split(entry, split)
    )


class Shards:
    """The files of a prepared data set, those of a storage fetched below `place`, one at a time."""

    def __init__(self, folder: Path, place: Path) -> None:
        self._folder, self._file = folder, place / "shard.parquet"
        self._fetched: str | None = None

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.unlink(missing_ok=True)

    def path(self, entry: FileEntry) -> Path:
        """Where the file can be read, until the next is asked for. `UserError` where it is damaged in the storage."""
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
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def key_of(folder: Path) -> str:
    """Of a prepared data set in a storage."""
    return f"data/{folder.parent.name}/{folder.name}"
