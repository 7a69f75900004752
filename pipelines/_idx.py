"""The idx files of MNIST and its like: an array of bytes behind a short head."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from mtlscale.spec import UserError


def idx_folder(pipeline: str, source: Path, names: tuple[str, ...]) -> Path:
    """Where below the source these files are, plain or .gz, also as torchvision keeps them. `UserError` where not."""
    if not source.is_dir():
        raise UserError(f"{pipeline}: source {source} is no folder; name the one with {names[0]}.gz")
    for folder in (source, source / "MNIST" / "raw", source / "raw"):
        missing = [name for name in names if idx_file(folder, name) is None]
        if not missing:
            return folder
        if len(missing) < len(names):
            raise UserError(f"{pipeline}: {missing[0]}.gz is missing in {folder}")
    raise UserError(f"{pipeline}: {source} has neither {names[0]}.gz nor {names[0]}")


def idx_file(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def read_idx(pipeline: str, folder: Path, name: str, dimensions: int) -> np.ndarray:
    """The array of bytes in an idx file: two zeros, the type (8: bytes), the number of dimensions, their sizes."""
    path = idx_file(folder, name)
    assert path is not None
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{pipeline}: {path} is damaged ({error}); fetch it again") from None
    start = 4 + 4 * dimensions
    shape = np.frombuffer(content[4:start].ljust(start - 4, b"\0"), ">u4")
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != start + int(np.prod(shape, dtype=np.int64)):
        raise UserError(
            f"{pipeline}: {path} is no idx file of {dimensions}-dimensional bytes, or cut off; fetch it again"
        )
    return np.frombuffer(content[start:], np.uint8).reshape(shape)
