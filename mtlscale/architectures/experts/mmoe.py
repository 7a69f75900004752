"""MMoE: experts that all tasks share, mixed for each task by its own gate."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, pooled
from mtlscale.architectures.towers import bank
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class MMoEModule(MultiTaskModule):
    """The network of shared experts, with a gate and a head for each task."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, experts: int, top: int, dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder
        self.experts = bank(encoder, experts, encoder.features, top)
        self.gates = nn.ModuleList(nn.Linear(encoder.features, experts, bias=False) for _ in suite.tasks)
        self.heads = nn.ModuleList(encoder.head(task, dropout, top) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        experts = self.experts(features)
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            predictions[task] = self.heads[index](mix(experts, self.gates[index](pooled(features))))
        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.experts.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [*self.gates[index].parameters(), *self.heads[index].parameters()]


def mix(experts: Tensor, gate: Tensor) -> Tensor:
    """Return the mean of experts, weighted by the softmax of a gate.

    Experts [E, B, F] or [E, B, F, h, w] and a gate [B, E] give [B, F] or [B, F, h, w].
    """
    return torch.einsum("eb...,be->b...", experts, gate.softmax(-1))


class MMoE(Architecture):
    """Multi-gate mixture of experts: hidden layers on the encoder, mixed per task by a gate, then a head.

    On maps an expert is a 3x3 convolution with batch normalisation, and gates read the mean over positions.
    """

    name: ClassVar[str] = "mmoe"
    source: ClassVar[str] = "Ma et al., KDD 2018"
    batchable: ClassVar[bool] = True

    experts: int = knob(4, low=1, search=(1, 2, 4, 8), help="number of experts")
    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of an expert")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return MMoEModule(suite, encoder(), self.experts, self.top, dropout)
