from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.objectives._alignment import Alignment, DiscrepancyModule, Side
from mtlscale.objectives._base import ObjectiveModule
from mtlscale.objectives._discrepancies import symmetric_divergence
from mtlscale.spec import TaskSuite


class KL(Alignment):
    """Kullback-Leibler divergence, both ways, of two domains' mean softmax of the features."""

    name: ClassVar[str] = "kl"
    source: ClassVar[str] = "Zhuang et al., IJCAI 2015"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return KLModule(self, model)


class KLModule(DiscrepancyModule):
    def discrepancy(self, source: Side, target: Side) -> Tensor:
        return symmetric_divergence(source.features, target.features)
