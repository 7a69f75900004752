"""Distance between the tasks' own parameters."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.objectives.contract import Objective, ObjectiveModule
from mtlscale.objectives.penalties._task_parameters import alike


class InterTaskL2(Objective):
    """Inter-task l2: c Σ_ij ‖ψ_i - ψ_j‖² over ordered pairs of tasks draws the tasks' own weights and biases together.

    ψ are the tasks' own parameters that have the same shape in every task: both layers of the tops of `shared_bottom`.
    """

    name: ClassVar[str] = "inter_task_l2"
    source: ClassVar[str] = "baseline of TOMATO (Zhang & Lee, CIKM 2020)"
    architecture: ClassVar[str] = "shared_bottom"
    per_token: ClassVar[bool] = True

    strength: float = knob(1e-3, low=0.0, search=(0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1.0), help="c")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        return InterTaskL2Module(self.strength, alike(self.name, suite, model))


class InterTaskL2Module(ObjectiveModule):
    """Objective that penalises the squared differences between the tasks' own parameters."""

    def __init__(self, strength: float, rows: Sequence[tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.strength = strength
        self.rows = rows  # the network's parameters, not this module's

    def penalty(self) -> Tensor | None:
        total = sum(pairwise(torch.stack(row)) for row in self.rows)
        assert isinstance(total, Tensor)
        return self.strength * total


def pairwise(values: Tensor) -> Tensor:
    """Return Σ_ij ‖v_i - v_j‖² over ordered pairs of [T, ...].

    It equals 2 T times the spread around the mean.
    """
    return 2 * len(values) * (values - values.mean(0)).square().sum()
