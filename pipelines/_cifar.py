"""The official files of CIFAR-10 and CIFAR-100: records of bytes, and the folders that torchvision keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mtlscale.spec import UserError
from pipelines._archive import read_members
from pipelines._plain_pickle import NotPlain, read_plain

PIXELS = 3 * 32 * 32


def contents(source: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The files of these names, wherever they lie in the folder or the archive."""
    return {
        name.rpartition("/")[2]: raw
        for name, raw in read_members(source, lambda name: name.rpartition("/")[2] in names)
    }


def records(name: str, file: str, content: bytes, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """(labels [N, `labels`], pictures [N, 32, 32, 3]) of a `.bin`; `UserError` where it is cut off."""
    size = labels + PIXELS
    if not content or len(content) % size:
        raise UserError(
            f"{name}: {file} has {len(content):,} bytes, no whole number of records of {size}: it is cut off; fetch it "
            "again"
        )
    table = np.frombuffer(content, np.uint8).reshape(-1, size)
    return table[:, :labels].astype(np.int64), _pictures(table[:, labels:])


def python_batch(name: str, file: str, content: bytes, key: bytes) -> tuple[np.ndarray, np.ndarray]:
    """(labels [N], pictures [N, 32, 32, 3]) of a batch as torchvision keeps it, a pickle, of which nothing is run."""
    try:
        found: Mapping[Any, Any] = read_plain(content)
    except NotPlain as error:
        raise UserError(f"{name}: {file} {error}; fetch it again, or pass the binary version") from None
    data, labels = (found.get(part, found.get(part.decode())) for part in (b"data", key))
    if not isinstance(data, np.ndarray) or data.shape[1:] != (PIXELS,) or not isinstance(labels, list):
        raise UserError(f"{name}: {file} holds no pictures of 32x32 and their {key.decode()}; pass the binary version")
    if not all(isinstance(label, int) for label in labels) or len(labels) != len(data):
        raise UserError(f"{name}: {file} has {len(labels)} labels for {len(data)} pictures; fetch it again")
    return np.array(labels, np.int64), _pictures(data)


def _pictures(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
