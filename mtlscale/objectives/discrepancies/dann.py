"""DANN: domain-adversarial neural network."""

from __future__ import annotations

from typing import ClassVar

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import sizes_of
from mtlscale.objectives.discrepancies._domain_adversary import DomainAdversary, DomainAdversaryModule


class DANN(DomainAdversary):
    """Domain-adversarial training: features whose domain a discriminator cannot tell."""

    name: ClassVar[str] = "dann"
    source: ClassVar[str] = "Ganin et al., JMLR 2016"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return DomainAdversaryModule(self, model, sizes_of(self, suite, model))
