"""Divergence of two domains (KL)."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.objectives.discrepancies._alignment import Discrepancy, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import symmetric_divergence


class KL(Discrepancy):
    """Kullback-Leibler divergence, in both directions, of two domains' mean softmax of the features."""

    name: ClassVar[str] = "kl"
    source: ClassVar[str] = "Zhuang et al., IJCAI 2015"

    def distance(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return symmetric_divergence(source.features, target.features)
