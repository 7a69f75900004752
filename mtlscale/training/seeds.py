"""Random seeds as a pure function of their purpose."""

from __future__ import annotations

import hashlib

import torch


def derive_seed(*parts: object) -> int:
    """Return a 63-bit seed from anything printable."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_generators(seed: int) -> None:
    """Seed torch's default generators: of the host, and of devices where this torch was built for any.

    Without, `torch.manual_seed` notes the caller's stack for devices that cannot be there. Nothing is asked of a
    device: that would keep processes forked later from using it.
    """
    if torch.accelerator.current_accelerator() is None:
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
