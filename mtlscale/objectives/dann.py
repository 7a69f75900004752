from __future__ import annotations

from typing import ClassVar

from mtlscale.architectures import MultiTaskModule
from mtlscale.objectives._alignment import sizes_of
from mtlscale.objectives._base import ObjectiveModule
from mtlscale.objectives._domain_adversary import DomainAdversary, DomainAdversaryModule
from mtlscale.spec import TaskSuite


class DANN(DomainAdversary):
    """Domain-adversarial training: features that a discriminator cannot tell the domain of."""

    name: ClassVar[str] = "dann"
    source: ClassVar[str] = "Ganin et al., JMLR 2016"

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        return DomainAdversaryModule(self, model, sizes_of(self, suite, model))
