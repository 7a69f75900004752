"""Fingerprints of sources: names and sizes of all files, and the content of files that hold labels."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

from mtlscale.data.tables.raw_files import is_hidden

BY_CONTENT = 4 << 20  # bytes; larger files are identified by their size
ENDS = 1 << 20  # bytes at both ends of a large table that are hashed
_PICTURES = frozenset(
    f".{end}" for end in ("jpg", "jpeg", "png", "bmp", "gif", "ppm", "pgm", "tif", "tiff", "webp", "npy", "npz")
)


def holds_labels(name: str, size: int) -> bool:
    """Return whether a file's content belongs to the fingerprint: lists, labels, texts.

    Pictures are too many to be read.
    """
    return size <= BY_CONTENT and PurePosixPath(name).suffix.lower() not in _PICTURES


def content(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ends(path: Path) -> str:
    """Return a hash of the first and last bytes of a table that is too large to be read every time.

    Parquet has its index at the end.
    """
    size = path.stat().st_size
    if size <= max(BY_CONTENT, 2 * ENDS):
        return content(path)
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(size - ENDS)
        digest.update(file.read())
    return digest.hexdigest()


def folder_fingerprint(folder: Path) -> str:
    """Return a hash of all names and sizes in a folder, and of the content of its files with labels."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, size = path.relative_to(folder).as_posix(), path.stat().st_size
        if is_hidden(name):
            continue
        content_hash = content(path) if holds_labels(name, size) else ""
        digest.update(f"{name}\0{size}\0{content_hash}\n".encode())
    return digest.hexdigest()
