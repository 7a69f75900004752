"""Training of many small trials as one batched model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily

if TYPE_CHECKING:
    from mtlscale.batched.eligibility.planning import CostEstimate
    from mtlscale.batched.trainer import BatchedTrainer

__all__ = [
    "BatchedTrainer",
    "CostEstimate",
]

__getattr__ = lazily(__name__)
