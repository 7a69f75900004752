"""Sparsity of TOMATO's deviations θˢ by exact proximal steps: the common parts of `tomato_el` and `tomato_ex`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from mtlscale.architectures import Architecture, MultiTaskModule
from mtlscale.architectures.hard.tomato import TomatoModule
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.objectives.contract import Objective, ObjectiveModule, ProximalModule

if TYPE_CHECKING:
    from mtlscale.config import TrainingSpec


class TopicPenalty(Objective):
    """Base class of penalties λ Ω(θˢ), applied by a proximal step after every step of plain SGD.

    The proximal step has size λ times the step's learning rate. SGD's weight decay is part of the gradient, so θˢ may
    have it: it is twice TOMATO's λ₀, taken before the proximal step as part of the smooth objective. Momentum and Adam
    would need a proximal step in another metric.
    """

    architecture: ClassVar[str] = "tomato"

    strength: float = knob(0.01, low=0.0, search=(0.0, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1), help="λ")
    groups: str = knob("module", choices=("module", "layer"), help="a norm per module, or per weight and bias tensor")

    def prox(self, theta: Tensor, step: float | Tensor) -> Tensor:
        """Return argmin of ‖Θ - θ‖²/(2 step) + Ω(Θ).

        Args:
            theta: Parameters θ [..., K, T, P].
            step: Size of the step [...].
        """
        raise NotImplementedError

    def require(self, architecture: Architecture, training: TrainingSpec) -> None:
        if architecture.name != "tomato":
            raise UserError(
                f"{self.name} penalises the topic-task modules of architecture tomato, not {architecture.name}; "
                f"write {{architecture: {{name: tomato, topics: 4}}, objective: {self.name}}}"
            )

        if training.optimizer != "sgd" or training.momentum:
            actual = f"momentum {training.momentum:g}" if training.optimizer == "sgd" else training.optimizer
            raise UserError(
                f"{self.name}: its proximal steps go with plain SGD, not with {actual}; set training.optimizer to sgd "
                "and momentum to 0"
            )

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        if not isinstance(model, TomatoModule):
            raise UserError(f"{self.name} needs architecture tomato")
        return TopicPenaltyModule(self, model)


class TopicPenaltyModule(ProximalModule):
    """Objective that shrinks the deviations of a TOMATO network after every step."""

    def __init__(self, settings: TopicPenalty, model: TomatoModule) -> None:
        super().__init__()
        self.settings, self.strength = settings, settings.strength
        self.special = tuple(model.special)  # a tuple, so that they stay the network's parameters alone
        self.sizes = model.sizes if settings.groups == "layer" else [sum(model.sizes)]

    def shrink(self, theta: Tensor, step: float | Tensor) -> Tensor:
        return torch.cat([self.settings.prox(part, step) for part in theta.split(self.sizes, -1)], -1)

    def traces_of(self, special: Tensor, final: bool) -> dict[str, Any]:
        norms = special.norm(dim=-1)  # ‖θˢ_kt‖ [K, T]
        traces: dict[str, Any] = {"special_modules": int(norms.count_nonzero())}
        if final:
            traces["topic_norms"] = [[round(norm, 6) for norm in topic] for topic in norms.tolist()]
        return traces
