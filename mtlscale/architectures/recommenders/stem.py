"""STEM: embeddings and experts that are shared, and others of each task, which no other task's loss moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, pooled
from mtlscale.architectures.experts.mmoe import mix
from mtlscale.architectures.towers import bank
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class STEMModule(MultiTaskModule):
    """The network of an encoder and experts for all tasks, and of others for each task."""

    reads_other_tasks = True

    def __init__(
        self, suite: TaskSuite, encoder: Callable[[], EncoderModule], own: int, shared: int, top: int, dropout: float
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder()
        self.encoders = nn.ModuleList(encoder() for _ in suite.tasks)

        features = self.encoder.features
        self.shared_experts = bank(self.encoder, shared, features, top)
        self.task_experts = nn.ModuleList(bank(self.encoder, own, features, top) for _ in suite.tasks)
        experts = own * len(suite.tasks) + shared
        self.gates = nn.ModuleList(nn.Linear(features, experts, bias=False) for _ in suite.tasks)
        self.heads = nn.ModuleList(self.encoder.head(task, dropout, top) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        common = self.encoder(batch.inputs)
        shared = self.shared_experts(common)
        features = [encoder(batch.inputs) for encoder in self.encoders]
        experts: list[Tensor] = [
            bank(task_features) for bank, task_features in zip(self.task_experts, features, strict=True)
        ]

        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            visible = [values if i == index else values.detach() for i, values in enumerate(experts)]
            gate = self.gates[index](pooled(features[index] + common))
            predictions[task] = self.heads[index](mix(torch.cat([*visible, shared]), gate))
        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.shared_experts.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        modules = (self.encoders[index], self.task_experts[index], self.gates[index], self.heads[index])
        return [p for module in modules for p in module.parameters()]


class STEM(Architecture):
    """Shared and task-specific embeddings: all tasks' experts forward, the task's own and the shared ones backward.

    An encoder and experts for all tasks, and an encoder and experts of each task's own. Task t mixes all of them by a
    gate, a softmax that reads the sum of the shared and its own features; no gradient goes back into another task's.
    There is one layer of experts, the released code's default. With `hidden: []` in an encoder of categories, each
    task has embeddings of its own and no more, as in the paper. Experts have one hidden layer, gates none, and heads
    are linear, as in `mmoe` here; the released code has two or three layers in each.
    """

    name: ClassVar[str] = "stem"
    source: ClassVar[str] = "Su et al., AAAI 2024"
    batchable: ClassVar[bool] = True

    own: int = knob(1, low=1, search=(1, 2, 4), help="experts of each task")
    shared: int = knob(1, low=1, search=(1, 2, 4), help="shared experts")
    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of an expert")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return STEMModule(suite, encoder, self.own, self.shared, self.top, dropout)
