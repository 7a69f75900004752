"""Reader for the idx files of MNIST and similar sets: an array of bytes behind a short header."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from mtlscale.config import UserError


def idx_folder(pipeline: str, source: Path, names: tuple[str, ...]) -> Path:
    """Return the folder at or below the source with these files, plain or .gz, also in torchvision's layout.

    Raises:
        UserError: Some or all of the files are missing.
    """
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
    """Return the path of a file, packed or plain; None if neither exists."""
    return next((path for path in (folder / f"{name}.gz", folder / name) if path.is_file()), None)


def read_idx(pipeline: str, folder: Path, name: str, dimensions: int) -> np.ndarray:
    """Return the array of bytes in an idx file.

    Its header has two zeros, the type (8: bytes), the number of dimensions and their sizes.
    """
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
