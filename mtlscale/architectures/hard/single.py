"""Single: one network that does not know which task it works for."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.towers import common_outputs, tower
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class SingleModule(MultiTaskModule):
    """The network of one encoder and one top for all tasks."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, dropout: float, top: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.top = tower(encoder, suite.tasks[0], dropout, top)

    def forward(self, batch: Batch) -> Outputs:
        prediction = self.top(self.encoder(batch.inputs))
        return Outputs(dict.fromkeys(batch.tasks, prediction))

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return []


class Single(Architecture):
    """Single network for all tasks: encoder and top of `shared_bottom`, everything shared."""

    name: ClassVar[str] = "single"
    source: ClassVar[str] = "baseline of TOMATO (Zhang & Lee, CIKM 2020)"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the top's hidden layer")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        common_outputs(self.name, suite.tasks)
        return SingleModule(suite, encoder(), dropout, self.top)
