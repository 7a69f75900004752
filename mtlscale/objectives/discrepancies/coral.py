"""CORAL: correlation alignment."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.discrepancies._alignment import Discrepancy, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import covariance_distance


class CORAL(Discrepancy):
    """Deep CORAL: the covariances of two domains' features are pulled together."""

    name: ClassVar[str] = "coral"
    source: ClassVar[str] = "Sun & Saenko, ECCV workshops 2016"

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return covariance_distance(source.features, target.features)
