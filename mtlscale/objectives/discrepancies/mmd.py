"""MMD: Squared maximum mean discrepancy of two domains' features, with five Gaussian kernels."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import Alignment, DiscrepancyModule, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import mean_discrepancy


class MMD(Alignment):
    """Squared maximum mean discrepancy of two domains' features, with five Gaussian kernels."""

    name: ClassVar[str] = "mmd"
    source: ClassVar[str] = "Gretton et al., JMLR 2012; kernels as in Long et al., ICML 2015"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return MMDModule(self, model)


class MMDModule(DiscrepancyModule):
    """Objective that minimises the maximum mean discrepancy of the features."""

    def discrepancy(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return mean_discrepancy([source.features], [target.features])
