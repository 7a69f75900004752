"""Random actions: what a policy that looks at nothing reaches in an environment, the floor of control."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch

from mtlscale.architectures._base import Architecture, MultiTaskModule
from mtlscale.architectures._environments import environments_of
from mtlscale.architectures._fitted import FittedModule
from mtlscale.architectures._phases import Phase
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.spec import TaskSuite

_LARGE = 43758.5453  # scrambles: the fractional part of a sine times this looks uniform


class RandomActionsModule(FittedModule):
    """Uniform in [-1, 1], a function of the input and of the seed: each step's is another, every run's the same."""

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
    """Actions drawn evenly from all there are, whatever is seen."""

    name: ClassVar[str] = "random_actions"
    source: ClassVar[str] = "own baseline: the usual floor of control"

    fitted: ClassVar[bool] = True

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(epochs=1),)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        environments_of(suite, self.name)
        return RandomActionsModule(suite)
