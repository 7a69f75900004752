"""CDAN: conditional domain-adversarial network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Workers
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.discrepancies._alignment import DomainBatch, sizes_of
from mtlscale.objectives.discrepancies._domain_adversary import DomainAdversary, DomainAdversaryModule


class CDAN(DomainAdversary):
    """Conditional adversarial adaptation: the discriminator sees features times class probabilities.

    With `entropy` rows count by 1 + exp(-entropy of their classes), with mean 1 in each domain (CDAN+E).
    """

    name: ClassVar[str] = "cdan"
    source: ClassVar[str] = "Long et al., NeurIPS 2018"

    entropy: bool = knob(False, help="weigh sure predictions more")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        self.check(suite)
        classes = sum(task.outputs for task in suite.tasks)
        return CDANModule(self, model, [features * classes for features in sizes_of(self, suite, model)])


class CDANModule(DomainAdversaryModule):
    """Domain adversary on the product of features and class probabilities."""

    probabilities = True

    def __init__(self, recipe: CDAN, model: MultiTaskModule, features: Sequence[int]) -> None:
        super().__init__(recipe, model, features)
        self.entropy = recipe.entropy

    def of_step(self, source: DomainBatch, target: DomainBatch, workers: Workers) -> tuple[Tensor | None, Tensor]:
        self._workers = workers
        return super().of_step(source, target, workers)

    def hidden_from(self, side: DomainBatch) -> Tensor:
        assert side.classes is not None
        return (side.features.unsqueeze(2) * side.classes.detach().unsqueeze(1)).flatten(1)

    def weights(self, side: DomainBatch) -> Tensor:
        if not self.entropy:
            return super().weights(side)
        assert side.classes is not None
        classes = side.classes.detach()
        values = 1 + (torch.special.entr(classes).sum(1)).neg().exp()
        scaled: Tensor = values * (side.total / self._workers.sum(values.sum()))
        return scaled
