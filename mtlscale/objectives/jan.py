from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.objectives._alignment import Alignment, DiscrepancyModule, Side
from mtlscale.objectives._base import ObjectiveModule
from mtlscale.objectives._discrepancies import mean_discrepancy
from mtlscale.spec import TaskSuite


class JAN(Alignment):
    """Joint adaptation: maximum mean discrepancy of features and class probabilities together."""

    name: ClassVar[str] = "jan"
    source: ClassVar[str] = "Long et al., ICML 2017"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return JANModule(self, model)


class JANModule(DiscrepancyModule):
    probabilities = True

    def discrepancy(self, source: Side, target: Side) -> Tensor:
        assert source.classes is not None and target.classes is not None
        return mean_discrepancy([source.features, source.classes], [target.features, target.classes])
