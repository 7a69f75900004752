"""Random actions: a policy that looks at nothing, the floor of control."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.fitted import FittedModule
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.rl.sac.requirements import environments_of

_LARGE = 43758.5453  # scrambles: the fractional part of a sine times this looks uniform


class RandomActionsModule(FittedModule):
    """Uniform actions in [-1, 1], a function of the input and of the seed.

    Each step has other actions, every run the same.
    """

    directions: torch.Tensor  # [inputs, actions]

    def __init__(self, suite: TaskSuite) -> None:
        super().__init__(suite)
        outputs = suite.tasks[0].outputs
        self.register_buffer("directions", torch.randn(suite.input_shape[0], outputs) * 1000.0)

    def forward(self, batch: Batch) -> Outputs:
        scrambled = (batch.inputs.double() @ self.directions.double()).sin() * _LARGE
        actions = (2.0 * (scrambled - scrambled.floor()) - 1.0).to(batch.inputs.dtype)
        return Outputs({name: self.with_graph(name, actions) for name in batch.tasks})


class RandomActions(Architecture):
    """Random policy: actions drawn uniformly from all possible ones, whatever is observed."""

    name: ClassVar[str] = "random_actions"
    source: ClassVar[str] = "own baseline: the usual floor of control"

    fitted: ClassVar[bool] = True

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        environments_of(suite, self.name)
        return RandomActionsModule(suite)
