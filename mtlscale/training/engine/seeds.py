"""Random seeds as a pure function of their purpose."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: object) -> int:
    """Return a 63-bit seed from anything printable."""
    text = "/".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
