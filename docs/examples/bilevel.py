"""Bi-level learning in one file: weights learn on one half of the training data, gates on the other.

Every task reads the shared features through gates of its own, σ(α_t) per feature. A step makes two updates: the weights
by the run's optimiser and balancer on the first half, the gates by an Adam of their own on the second, so that a gate
opens only for what generalises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import nn

from mtlscale.architectures import Architecture, MultiTaskModule, OptimizerSpec, Phase, Turn, encoder_head
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class GatedModule(MultiTaskModule):
    """One encoder, a gate per task and feature, one head per task."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder
        self.gates = nn.ParameterList(nn.Parameter(torch.zeros(encoder.features)) for _ in suite.tasks)
        self.heads = nn.ModuleList(encoder_head(encoder, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        places = {task: self.names.index(task) for task in batch.tasks}
        return Outputs({t: self.heads[i](features * self.gates[i].sigmoid()) for t, i in places.items()})

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.encoder.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.names.index(task)
        return [self.gates[place], *self.heads[place].parameters()]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        return {"weights": [*self.encoder.parameters(), *self.heads.parameters()], "gates": list(self.gates)}

    def traces(self) -> dict[str, Any]:
        return {"gates": {n: g.sigmoid().tolist() for n, g in zip(self.names, self.gates, strict=True)}}


class Gated(Architecture):
    """Hard sharing with a learned gate per task and feature, trained on the half that the weights do not see."""

    name: ClassVar[str] = "gated"
    source: ClassVar[str] = "own example"

    gate_lr: float = knob(3e-2, low=0.0, open_low=True, help="learning rate of the gates' Adam")

    def phases(self) -> tuple[Phase, ...]:
        training = {"optimizer": "adam", "lr": self.gate_lr, "weight_decay": 0.0, "schedule": "constant"}
        adam = OptimizerSpec(training=training)
        return (
            Phase(
                turns=(
                    Turn(name="weights", share="first", groups=("weights",)),
                    Turn(name="gates", share="second", groups=("gates",), balancer=Equal(), optimizer=adam),
                )
            ),
        )

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return GatedModule(suite, encoder(), dropout)
