"""Random seeds as a pure function of their purpose."""

from __future__ import annotations

import hashlib

import torch


def derive_seed(*parts: object) -> int:
    """Return a 63-bit seed from anything printable."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_generators(seed: int) -> None:
    """Seed torch's default generators: of the host, and of its devices where it has any.

    `torch.manual_seed` notes the caller's stack for devices that are absent, which takes longer than a short step.
    """
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
