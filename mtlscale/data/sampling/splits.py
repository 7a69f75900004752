"""Splits decided by a hash of the sample's stable id: the same for any order, block layout and number of workers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def uniform_hash(id: str, salt: str = "") -> float:
    """Return a number in [0, 1) that depends on the id and the salt alone."""
    digest = hashlib.blake2b(f"{salt}\0{id}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2.0**53  # 53 bits: exact in a float, never 1.0


def hash_split(id: str, fractions: Mapping[str, float], salt: str = "") -> str:
    """Return the split of a sample: intervals of [0, 1) in the order of `fractions`, which add up to 1."""
    value, edge = uniform_hash(id, salt), 0.0
    for split, fraction in fractions.items():
        edge += fraction
        if value < edge:
            return split
    return split  # the fractions add up to 1 but for rounding


def carve_validation(id: str, fraction: float, salt: str = "") -> str:
    """Return whether a training sample stays in "train" or is held out in "val", for sets without validation."""
    return hash_split(id, {"val": fraction, "train": 1.0 - fraction}, salt)


def kept_count(size: int, fraction: float) -> int:
    """Return the number of samples, at least one, that a share keeps."""
    return min(size, max(1, round(fraction * size)))
