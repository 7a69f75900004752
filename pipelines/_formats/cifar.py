"""Readers for the official binary files of CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mtlscale.config import UserError
from pipelines._formats.archive import read_members

BINARY = ".bin"
PIXELS = 3 * 32 * 32


def holds(folder: Path, batches: Sequence[str]) -> bool:
    """Return whether a folder has one of the batches, as binary file or as torchvision's pickle."""
    return any((folder / f"{batch}{ending}").is_file() for batch in batches for ending in (BINARY, ""))


def contents(name: str, source: Path, batches: Sequence[str]) -> dict[str, bytes]:
    """Return batch -> content of its binary file, in any folder of the source or its archive.

    Args:
        name: The pipeline, for messages.
        source: The folder or archive.
        batches: Names of files without their ending.

    Raises:
        UserError: The source has pickles of torchvision: a pickle is a program, and reading it would run it.
    """
    files = {
        path.rpartition("/")[2]: raw
        for path, raw in read_members(source, lambda path: path.rpartition("/")[2].removesuffix(BINARY) in batches)
    }
    if files and not any(file.endswith(BINARY) for file in files):
        raise UserError(
            f"{name}: {source} holds torchvision's pickles, which are programs and are never run; fetch the binary "
            "version, or convert them (docs/datasets_images.md)"
        )
    return {file.removesuffix(BINARY): raw for file, raw in files.items() if file.endswith(BINARY)}


def records(name: str, file: str, content: bytes, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (labels [N, `labels`], pictures [N, 32, 32, 3]) of a `.bin` file.

    Raises:
        UserError: The file ends in the middle of a record.
    """
    size = labels + PIXELS
    if not content or len(content) % size:
        raise UserError(
            f"{name}: {file} has {len(content):,} bytes, no whole number of records of {size}: it is cut off; fetch it "
            "again"
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, size)
    return table[:, :labels].astype(np.int64), table[:, labels:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
