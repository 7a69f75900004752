"""AAMTRL: a task adversary whose strength adapts."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from mtlscale.architectures import EpochView, MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.objectives.contract import ObjectiveModule
from mtlscale.objectives.relatedness import MULTIPLIER_RULES, chance_score, next_multiplier, relatedness_weights
from mtlscale.objectives.task_discriminator import Adversarial, AdversarialModule


class AAMTRL(Adversarial):
    """Adaptive adversarial multi-task learning: augmented Lagrangian of A = 0, tasks weighted by their relatedness.

    Source: AAMTRL, ICML 2020, eq. 14-21. An outer iteration is one epoch. The encoder gets the reversed gradient with
    strength [λ + rĀ]₊, where Ā is an average over the steps before. Divergences, see docs/methods.md: R comes from
    means per task; λ follows dual ascent, with the printed rule as an option; λ is capped.
    """

    name: ClassVar[str] = "aamtrl"
    source: ClassVar[str] = "Mao, Liu & Lin, ICML 2020, eq. 14-21"

    uniform: bool = knob(False, help="the paper's ablation: equal task weights")
    multiplier: float = knob(1.0, low=0.0, search=(0.01, 10.0, "log"), help="λ of the first epoch")
    multiplier_rule: str = knob("ascent", choices=MULTIPLIER_RULES, help="λ + rA, or λ - rA as printed")
    multiplier_max: float = knob(100.0, low=0.0, help="cap of λ under ascent")
    penalty: float = knob(10.0, low=0.0, search=(1.0, 100.0, "log"), help="r of the first epoch")
    penalty_growth: float = knob(2.0, low=0.0, help="added to r after every epoch")
    smoothing: float = knob(0.9, low=0.0, high=1.0, open_high=True, help="decay of the average of A over steps")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        return AAMTRLModule(suite, self.check(suite, model), self)


class AAMTRLModule(AdversarialModule):
    """Objective with an adaptive strength of the adversary and weights by relatedness."""

    multiplier: Tensor  # λ
    quadratic: Tensor  # r
    average: Tensor  # average of A over steps
    weights: Tensor  # task weights [T]
    gathered: Tensor  # mean score of the true task so far in this step, on this worker

    def __init__(self, suite: TaskSuite, features: int, settings: AAMTRL) -> None:
        super().__init__(suite, features, settings.form)
        self.settings = settings
        size = len(suite.tasks)
        start = {"multiplier": settings.multiplier, "quadratic": settings.penalty, "average": 0.0}
        for name, value in start.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self.register_buffer("weights", torch.full((size,), 1.0 / size, dtype=torch.float64))
        self.register_buffer("gathered", torch.zeros((), dtype=torch.float64), persistent=False)
        self.used: dict[str, Any] = {}  # settings of the last finished epoch

    def strength(self) -> Tensor:
        return (self.multiplier + self.quadratic * self.average).clamp(min=0.0)

    def task_weights(self) -> Tensor | None:
        return None if self.settings.uniform else self.weights * len(self.weights)

    def gather(self, value: Tensor) -> None:
        self.gathered += value

    def discard_step(self) -> None:
        self.gathered.zero_()

    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        score = sum(self.gathered)
        # Used in place of this step's A, which is complete only after all of the step's gradients.
        self.average.lerp_(score - chance_score(self.form, len(self.weights)), 1.0 - self.settings.smoothing)
        self.gathered.zero_()

    def on_epoch_end(self, epoch: EpochView) -> None:
        super().on_epoch_end(epoch)
        self.used = {"lambda": float(self.multiplier), "r": float(self.quadratic), "weights": self.weights.tolist()}
        settings = self.settings
        self.multiplier.copy_(
            next_multiplier(
                self.multiplier, self.quadratic, self.adversary, settings.multiplier_rule, settings.multiplier_max
            )
        )
        self.quadratic += settings.penalty_growth
        if not settings.uniform:
            self.weights.copy_(relatedness_weights(self.relatedness))

    def traces(self) -> dict[str, Any]:
        return {**super().traces(), **self.used}
