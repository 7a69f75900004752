"""What tells one source from another: names and sizes of all files, and the content of those that hold labels."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

BY_CONTENT = 4 << 20  # bytes; larger files are told by their size
ENDS = 1 << 20  # bytes at both ends of a large table that are looked at
_PICTURES = frozenset(
    f".{end}" for end in ("jpg", "jpeg", "png", "bmp", "gif", "ppm", "pgm", "tif", "tiff", "webp", "npy", "npz")
)


def holds_labels(name: str, size: int) -> bool:
    """Whether a file's content belongs to the fingerprint: lists, labels, texts. Pictures are too many to be read."""
    return size <= BY_CONTENT and PurePosixPath(name).suffix.lower() not in _PICTURES


def content(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ends(path: Path) -> str:
    """Of a table too large to be read every time: its first and last bytes, where Parquet has its own index."""
    size = path.stat().st_size
    if size <= max(BY_CONTENT, 2 * ENDS):
        return content(path)
    with path.open("rb") as file:
        digest = hashlib.sha256(file.read(ENDS))
        file.seek(size - ENDS)
        digest.update(file.read())
    return digest.hexdigest()


def folder_fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, size = path.relative_to(folder).as_posix(), path.stat().st_size
        told = content(path) if holds_labels(name, size) else ""
        digest.update(f"{name}\0{size}\0{told}\n".encode())
    return digest.hexdigest()
