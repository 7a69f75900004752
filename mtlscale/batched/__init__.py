"""Training of many small trials as one batched model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mtlscale.lazy import lazily
from mtlscale.renamed import renamed_names

if TYPE_CHECKING:
    from mtlscale.batched.eligibility.planning import CostEstimate
    from mtlscale.batched.trainer import BatchedTrainer

__all__ = [
    "BatchedTrainer",
    "CostEstimate",
]

__getattr__ = renamed_names(
    __name__,
    {"Estimate": "CostEstimate"},
    lazily(__name__),
)
