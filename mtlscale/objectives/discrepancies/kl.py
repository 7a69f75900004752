"""KL: Kullback-Leibler divergence, in both directions, of two domains' mean softmax of the features."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import Alignment, DiscrepancyModule, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import symmetric_divergence


class KL(Alignment):
    """Kullback-Leibler divergence, in both directions, of two domains' mean softmax of the features."""

    name: ClassVar[str] = "kl"
    source: ClassVar[str] = "Zhuang et al., IJCAI 2015"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return KLModule(self, model)


class KLModule(DiscrepancyModule):
    """Objective that minimises the symmetric divergence of the features' mean softmax."""

    def discrepancy(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return symmetric_divergence(source.features, target.features)
