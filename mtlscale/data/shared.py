"""Prepared data that nodes without a common folder share, in a `Storage`."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mtlscale.data.prepared import MANIFEST, damage, read_manifest
from mtlscale.records import Storage
from mtlscale.spec import UserError


def publish(storage: Storage, folder: Path) -> None:
    """Store a prepared data set, its manifest last; nothing where it is there already."""
    key = _key(folder)
    if storage.exists(f"{key}/{MANIFEST}"):
        return
    for name in (*(entry.path for entry in read_manifest(folder).files), MANIFEST):
        storage.put(folder / name, f"{key}/{name}")


def fetch(storage: Storage, folder: Path) -> bool:
    """Fetch a prepared data set, whole or not at all; False where nobody has published it."""
    key = _key(folder)
    if not storage.exists(f"{key}/{MANIFEST}"):
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        storage.get(f"{key}/{MANIFEST}", temporary / MANIFEST)
        manifest = read_manifest(temporary)
        for entry in manifest.files:
            storage.get(f"{key}/{entry.path}", temporary / entry.path)
        problem = damage(temporary, manifest)
        if problem is not None:
            raise UserError(f"storage {storage.url}: {key} is damaged ({problem}); remove it there and prepare it anew")
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
    return f"{storage.rstrip('/')}/{_key(folder)}"


def _key(folder: Path) -> str:
    return f"data/{folder.parent.name}/{folder.name}"
