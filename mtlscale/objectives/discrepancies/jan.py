"""JAN: Joint adaptation: maximum mean discrepancy of features and class probabilities together."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import Alignment, DiscrepancyModule, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import mean_discrepancy


class JAN(Alignment):
    """Joint adaptation: maximum mean discrepancy of features and class probabilities together."""

    name: ClassVar[str] = "jan"
    source: ClassVar[str] = "Long et al., ICML 2017"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return JANModule(self, model)


class JANModule(DiscrepancyModule):
    """Objective that minimises the joint discrepancy of features and class probabilities."""

    probabilities = True

    def discrepancy(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        assert source.classes is not None and target.classes is not None
        return mean_discrepancy([source.features, source.classes], [target.features, target.classes])
