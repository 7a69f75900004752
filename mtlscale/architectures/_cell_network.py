"""The network of a genotype for one task of classification, with an auxiliary head in training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.architectures._base import MultiTaskModule, linear_head
from mtlscale.architectures._step_draws import StepDraws, Table
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import AUXILIARY, BatchNorm2d, EncoderModule, Genotype, Memory
from mtlscale.encoders.darts_cells import DartsCellsModule
from mtlscale.spec import Task, TaskSuite, UserError


def only_task(suite: TaskSuite, name: str) -> Task:
    """The one task of classification on images; `UserError` where there is another."""
    if len(suite.tasks) != 1 or suite.tasks[0].loss != "cross_entropy" or suite.input_kind != "image":
        tasks = "one" if len(suite.tasks) == 1 else str(len(suite.tasks))
        raise UserError(
            f"{name} is for one task of classification on images, {suite.name} has {tasks} on {suite.input_kind}s; "
            "name one in `tasks`, or choose another method"
        )
    return suite.tasks[0]


def of_cells(encoder: EncoderModule, name: str) -> DartsCellsModule:
    """The encoder, where it is of cells; `UserError` where it is not."""
    if not isinstance(encoder, DartsCellsModule):
        raise UserError(f"{name} trains networks of cells; set the encoder to darts_cells")
    return encoder


class AuxiliaryHead(nn.Module):
    """A map after the second reduction -> a prediction, as DARTS has it: pooled to 2x2, two convolutions, one layer."""

    def __init__(self, channels: int, size: tuple[int, int], classes: int) -> None:
        super().__init__()
        # Of the 8x8 map of small images the windows overlap.
        self.pool = nn.AvgPool2d(5, 3, count_include_pad=False) if size == (8, 8) else nn.AdaptiveAvgPool2d(2)
        one, two = AUXILIARY
        self.first = nn.Sequential(nn.Conv2d(channels, one, 1, bias=False), BatchNorm2d(one), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(one, two, 2, bias=False), BatchNorm2d(two), nn.ReLU())
        self.last = nn.Linear(two, classes)

    def forward(self, maps: Tensor) -> Tensor:
        found: Tensor = self.last(self.second(self.first(self.pool(functional.relu(maps)))).flatten(1))
        return found


class CellNetwork(MultiTaskModule):
    """An encoder of cells and a linear head; drop-path grows over the epochs, auxiliary 0: no such head."""

    def __init__(
        self, suite: TaskSuite, encoder: DartsCellsModule, dropout: float, auxiliary: float, name: str
    ) -> None:
        super().__init__()
        task = only_task(suite, name)
        self.task, self.encoder, self.factor = task.name, encoder, auxiliary
        self.head = linear_head(encoder.features, task, dropout)
        self.auxiliary = None
        if auxiliary:
            self.auxiliary = AuxiliaryHead(encoder.auxiliary_features, encoder.auxiliary_size, task.outputs)
        self.draws = StepDraws(int(torch.randint(1 << 31, (), device="cpu")))

    def forward(self, batch: Batch) -> Outputs:
        if not batch.tasks:
            return Outputs({})
        if self.training and self.encoder.numbers:
            self.draws.begin(batch)
            self.encoder.uniform = Table(self.draws(self.encoder.numbers, batch.inputs))
        features, memory = self.encoder.prepare(batch.inputs), Memory()
        for stage in range(len(self.encoder.stages)):
            features = self.encoder.stage(stage, features, memory)
        outputs = Outputs({self.task: self.head(self.encoder.finish(features))})
        if self.training and self.auxiliary is not None:
            outputs.auxiliary = {self.task: self.auxiliary(memory["auxiliary"])}
            outputs.auxiliary_factor = self.factor
        return outputs

    def shared_parameters(self) -> list[nn.Parameter]:
        aside = [] if self.auxiliary is None else list(self.auxiliary.parameters())
        return [*self.encoder.parameters(), *aside]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.head.parameters())

    def on_epoch_begin(self, epoch: int) -> None:
        self.encoder.progress = (epoch - 1) / max(1, self.phase_epochs)

    def after_step(self, lr: float, sum: Any) -> None:
        self.draws.next()

    def structure(self) -> dict[str, Any]:
        """The genotype as text and cell by cell."""
        genotype: Genotype = self.encoder.genotype
        return {"genotype": genotype.text(), "cells": genotype.plain()}

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.draws.steps)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws.steps = int(state)
