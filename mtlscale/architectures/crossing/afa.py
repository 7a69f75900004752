"""AFA: parallel networks that add, after every stage, gated features of the other tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, map_staged, pooled
from mtlscale.architectures.crossing._parallel import ParallelModule
from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import EncoderModule, MapStagedModule


class Aggregation(nn.Module):
    """Aggregation of all tasks' features [T, B, C, h, w] -> those of one task, [B, C, h, w]."""

    def __init__(self, tasks: int, task: int, width: int, reduction: int) -> None:
        super().__init__()
        self.task = task
        self.others = [candidate for candidate in range(tasks) if candidate != task]

        inner = max(1, width // reduction)
        self.channel = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.ReLU(), nn.Linear(inner, width), nn.Sigmoid())
            for _ in self.others
        )
        self.place = nn.Conv2d(2, 1, 7, padding=3) if self.others else None

    def forward(self, features: Tensor) -> Tensor:
        own_features = features[self.task]
        if self.place is None:
            return own_features
        gated = [
            gate(pooled(features[o]))[:, :, None, None] * features[o]
            for o, gate in zip(self.others, self.channel, strict=True)
        ]
        gated_sum = torch.stack(gated).sum(0)
        summary = torch.cat([gated_sum.mean(1, keepdim=True), gated_sum.amax(1, keepdim=True)], dim=1)
        result: Tensor = own_features + self.place(summary).sigmoid() * gated_sum
        return result


class AFAModule(ParallelModule):
    """Parallel networks with an aggregation for each task after every stage."""

    def __init__(self, suite: TaskSuite, encoders: list[MapStagedModule], reduction: int, dropout: float) -> None:
        super().__init__(suite, encoders, dropout)
        self.layers = nn.ModuleList(
            nn.ModuleList(Aggregation(len(encoders), task, width, reduction) for task in range(len(encoders)))
            for width in encoders[0].widths
        )

    def exchange(self, stage: int, task: int, features: Tensor) -> Tensor:
        result: Tensor = self.layers[stage][task](features)  # type: ignore[index]
        return result

    def exchange_parameters(self, stage: int, task: int) -> list[nn.Parameter]:
        return list(self.layers[stage][task].parameters())  # type: ignore[index]


class AFA(Architecture):
    """Adaptive feature aggregation: a full encoder per task; after each stage the others' features are gated and added.

    Channels have a gate in [0, 1] for every ordered pair of tasks, from the mean over positions of the other task's
    features through two linear layers. Positions have a gate from a 7x7 convolution on the mean and the largest channel
    of what the first gates let through. The source does not settle the exact order and sizes; this is our reading.
    """

    name: ClassVar[str] = "afa"
    source: ClassVar[str] = "Cui et al., IEEE TCSVT 2021; Shen et al., CIKM 2020"
    needs_stages: ClassVar[bool] = True

    reduction: int = knob(16, low=1, help="channels over the gates' hidden layer")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        encoders = [map_staged(encoder(), self.name) for _ in suite.tasks]
        return AFAModule(suite, encoders, self.reduction, dropout)
