"""Cross-stitch: parallel networks, one per task, that exchange features after every hidden layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, linear_head, map_staged, of_vectors
from mtlscale.architectures.crossing._parallel import ParallelModule
from mtlscale.architectures.towers import Bank
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, MapStagedModule


class CrossStitchModule(MultiTaskModule):
    """The network of stitched hidden layers, on one encoder of all tasks or on one per task.

    If there is one encoder per task, the encoders' outputs are stitched as well.
    """

    def __init__(
        self, suite: TaskSuite, encoders: list[EncoderModule], top: int, per_channel: bool, dropout: float
    ) -> None:
        super().__init__()
        size = len(suite.tasks)
        self.names = tuple(task.name for task in suite.tasks)

        features = encoders[0].features
        self.encoders = nn.ModuleList(encoders)
        self.bottom_units = nn.ParameterList(
            [stitch(size, features if per_channel else 1)] if len(encoders) > 1 else []
        )  # [T, T, F or 1]

        self.hidden = Bank(size, features, top)
        # One row per task, which that task's loss alone moves.
        self.units = nn.ParameterList(stitch(size, top if per_channel else 1).unbind())  # [T, top or 1] each
        self.heads = nn.ModuleList(linear_head(top, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features: Tensor = torch.stack([encoder(batch.inputs) for encoder in self.encoders])
        if len(self.bottom_units):
            features = (self.bottom_units[0].unsqueeze(2) * features).sum(1)
        hidden = self.hidden(features)  # [T, B, top]
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            stitched = (self.units[index].unsqueeze(1) * hidden).sum(0)
            predictions[task] = self.heads[index](stitched)
        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoders.parameters(), *self.bottom_units.parameters(), *self.hidden.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [self.units[index], *self.heads[index].parameters()]


class StagedCrossStitchModule(ParallelModule):
    """Parallel encoders; after every stage each task's features become a learnt sum of all tasks' features."""

    def __init__(self, suite: TaskSuite, encoders: list[MapStagedModule], per_channel: bool, dropout: float) -> None:
        super().__init__(suite, encoders, dropout)
        self.units = nn.ModuleList(  # a row [T, C or 1] per task, after every stage
            nn.ParameterList(stitch(len(encoders), width if per_channel else 1).unbind())
            for width in encoders[0].widths
        )

    def exchange(self, stage: int, task: int, features: Tensor) -> Tensor:
        row: Tensor = self.units[stage][task]  # type: ignore[index]
        return (row[:, None, :, None, None] * features).sum(0)

    def exchange_parameters(self, stage: int, task: int) -> list[nn.Parameter]:
        return [self.units[stage][task]]  # type: ignore[index]


def stitch(tasks: int, channels: int) -> Tensor:
    """Return the first cross-stitch unit [T, T, channels]: 0.9 of own features, 0.1 spread over the others."""
    if tasks == 1:
        return torch.ones(1, 1, channels)
    unit = torch.full((tasks, tasks), 0.1 / (tasks - 1)).fill_diagonal_(0.9)
    return unit.unsqueeze(-1).repeat(1, 1, channels)


class CrossStitch(Architecture):
    """Cross-stitch networks: a hidden layer per task, whose outputs are recombined for each task by learnt weights.

    With `bottom: stages` every task has a full encoder, stitched after each of its stages, and a head; there is no
    other hidden layer. With `bottom: own` every task has an encoder, stitched at its output, below the hidden layers.
    With `bottom: shared`, as in TOMATO's comparison, all tasks share one. `auto` is `stages` if the encoder has stages,
    else `shared`.
    """

    name: ClassVar[str] = "cross_stitch"
    source: ClassVar[str] = "Misra et al., CVPR 2016; on one bottom: Zhang & Lee, CIKM 2020"
    batchable: ClassVar[bool] = True

    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of the hidden layers")
    units: str = knob("scalar", choices=("scalar", "channel"), help="a weight per pair of tasks, or per channel, too")
    bottom: str = knob(
        "auto", choices=("auto", "shared", "own", "stages"), help="one encoder; one per task; one per task, cut open"
    )

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        first, per_channel = encoder(), self.units == "channel"
        if self.bottom == "stages" or (self.bottom == "auto" and isinstance(first, MapStagedModule)):
            staged_encoders = [map_staged(first, f"{self.name} with bottom = stages")]
            staged_encoders += [map_staged(encoder(), self.name) for _ in suite.tasks[1:]]
            return StagedCrossStitchModule(suite, staged_encoders, per_channel, dropout)
        of_vectors(first, f"{self.name} with bottom = {self.bottom}")
        encoders = [first, *(encoder() for _ in suite.tasks[1:] if self.bottom == "own")]
        return CrossStitchModule(suite, encoders, self.top, per_channel, dropout)
