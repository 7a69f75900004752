"""Readers for the official files of CIFAR-10 and CIFAR-100: binary records, and torchvision's folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mtlscale.config import UserError
from pipelines._formats.archive import read_members
from pipelines._formats.plain_pickle import NotPlain, read_plain

PIXELS = 3 * 32 * 32


def contents(source: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Return file name -> content for the named files, in any folder of the source or its archive."""
    return {
        name.rpartition("/")[2]: raw
        for name, raw in read_members(source, lambda name: name.rpartition("/")[2] in names)
    }


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
    return table[:, :labels].astype(np.int64), _pictures(table[:, labels:])


def python_batch(name: str, file: str, content: bytes, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return (labels [N], pictures [N, 32, 32, 3]) of a pickled batch of torchvision, running none of its code.

    Args:
        name: The pipeline, for messages.
        file: The file, for messages.
        key: The entry that holds the labels.

    Raises:
        UserError: The pickle holds anything but plain data, no pictures of 32x32, or another number of labels.
    """
    try:
        batch: Mapping[Any, Any] = read_plain(content)
    except NotPlain as error:
        raise UserError(f"{name}: {file} {error}; fetch it again, or pass the binary version") from None

    data, labels = (batch.get(part, batch.get(part.decode())) for part in (b"data", key))
    if not isinstance(data, np.ndarray) or data.shape[1:] != (PIXELS,) or not isinstance(labels, list):
        raise UserError(f"{name}: {file} holds no pictures of 32x32 and their {key.decode()}; pass the binary version")
    if not all(isinstance(label, int) for label in labels) or len(labels) != len(data):
        raise UserError(f"{name}: {file} has {len(labels)} labels for {len(data)} pictures; fetch it again")

    return np.array(labels, np.int64), _pictures(data)


def _pictures(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
