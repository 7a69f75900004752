"""CORAL: Deep CORAL: the covariances of two domains' features are pulled together."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import Alignment, DiscrepancyModule, DomainBatch
from mtlscale.objectives.discrepancies._discrepancies import covariance_distance


class CORAL(Alignment):
    """Deep CORAL: the covariances of two domains' features are pulled together."""

    name: ClassVar[str] = "coral"
    source: ClassVar[str] = "Sun & Saenko, ECCV workshops 2016"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return CORALModule(self, model)


class CORALModule(DiscrepancyModule):
    """Objective that minimises the distance of the features' covariances."""

    def discrepancy(self, source: DomainBatch, target: DomainBatch) -> Tensor:
        return covariance_distance(source.features, target.features)
