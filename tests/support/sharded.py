"""Prepared sets cut into many small files, for readers that go through them file by file."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from mtlscale.data.readers.prepared import MANIFEST, FileEntry, read_manifest


def sharded(source: Path, target: Path, rows: int, group: int) -> Path:
    """The same set, its streams in files of so many rows, in row groups of so many."""
    manifest, files = read_manifest(source), []
    target.mkdir(parents=True)
    for entry in manifest.files:
        name, dot, _ = entry.path.partition(".parquet")
        if not dot or "/" not in name:
            shutil.copy(source / entry.path, target / entry.path)
            files.append(entry)
            continue
        table = pq.read_table(source / entry.path)
        (target / name).mkdir(parents=True)
        for number, start in enumerate(range(0, len(table), rows)):
            path = f"{name}/{number:05d}.parquet"
            pq.write_table(table.slice(start, rows), target / path, row_group_size=group)
            content = (target / path).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            files.append(FileEntry(path=path, bytes=len(content), rows=min(rows, len(table) - start), sha256=digest))
    digest = hashlib.sha256("".join(entry.sha256 for entry in files).encode()).hexdigest()
    manifest = manifest.model_copy(update={"files": files, "fingerprint": digest})
    (target / MANIFEST).write_text(manifest.model_dump_json())
    return target
