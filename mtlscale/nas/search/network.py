"""The network of a genotype for one image classification task, with an auxiliary head in training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.architectures.contract import MultiTaskModule, linear_head
from mtlscale.architectures.hooks import EpochView
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import BatchNorm2d, EncoderModule, Memory
from mtlscale.nas.cells import AUXILIARY, Genotype
from mtlscale.nas.encoders.darts_cells import DartsCellsModule
from mtlscale.nas.search.step_draws import DrawnNumbers, StepDraws


def only_task(suite: TaskSuite, name: str) -> Task:
    """Return the suite's only task, a classification of images; raise `UserError` for any other suite."""
    if len(suite.tasks) != 1 or suite.tasks[0].loss != "cross_entropy" or suite.input_kind != "image":
        tasks = "one" if len(suite.tasks) == 1 else str(len(suite.tasks))
        raise UserError(
            f"{name} is for one task of classification on images, {suite.name} has {tasks} on {suite.input_kind}s; "
            "name one in `tasks`, or choose another method"
        )
    return suite.tasks[0]


def of_cells(encoder: EncoderModule, name: str) -> DartsCellsModule:
    """Return the encoder if it consists of cells; raise `UserError` otherwise."""
    if not isinstance(encoder, DartsCellsModule):
        raise UserError(f"{name} trains networks of cells; set the encoder to darts_cells")
    return encoder


class AuxiliaryHead(nn.Module):
    """The auxiliary head of DARTS: a map after the second reduction -> a prediction.

    The map is pooled to 2x2 and passes two convolutions and one linear layer.
    """

    def __init__(self, channels: int, size: tuple[int, int], classes: int) -> None:
        super().__init__()
        # The 8x8 maps of small images are pooled by overlapping windows.
        self.pool = nn.AvgPool2d(5, 3, count_include_pad=False) if size == (8, 8) else nn.AdaptiveAvgPool2d(2)
        first_width, second_width = AUXILIARY
        self.first = nn.Sequential(nn.Conv2d(channels, first_width, 1, bias=False), BatchNorm2d(first_width), nn.ReLU())
        self.second = nn.Sequential(
            nn.Conv2d(first_width, second_width, 2, bias=False), BatchNorm2d(second_width), nn.ReLU()
        )
        self.last = nn.Linear(second_width, classes)

    def forward(self, maps: Tensor) -> Tensor:
        prediction: Tensor = self.last(self.second(self.first(self.pool(functional.relu(maps)))).flatten(1))
        return prediction


class CellNetwork(MultiTaskModule):
    """The network of an encoder of cells and a linear head.

    Drop-path grows over the epochs. `auxiliary` is the factor of the auxiliary head's loss; with 0 there is no such
    head.
    """

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
            self.encoder.uniform = DrawnNumbers(self.draws(self.encoder.numbers, batch.inputs))

        features, memory = self.encoder.prepare(batch.inputs), Memory()
        for stage in range(len(self.encoder.stages)):
            features = self.encoder.stage(stage, features, memory)

        outputs = Outputs({self.task: self.head(self.encoder.finish(features))})
        if self.training and self.auxiliary is not None:
            outputs.auxiliary = {self.task: self.auxiliary(memory["auxiliary"])}
            outputs.auxiliary_factor = self.factor

        return outputs

    def shared_parameters(self) -> list[nn.Parameter]:
        auxiliary_parameters = [] if self.auxiliary is None else list(self.auxiliary.parameters())
        return [*self.encoder.parameters(), *auxiliary_parameters]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return list(self.head.parameters())

    def on_epoch_begin(self, epoch: EpochView) -> None:
        self.encoder.progress = (epoch.number - 1) / max(1, epoch.epochs)

    def after_step(self, lr: float, sum: Any) -> None:
        self.draws.next()

    def structure(self) -> dict[str, Any]:
        """Return the genotype as text and cell by cell."""
        genotype: Genotype = self.encoder.genotype
        return {"genotype": genotype.text(), "cells": genotype.plain()}

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.draws.steps)

    def set_extra_state(self, state: Tensor) -> None:
        self.draws.steps = int(state)
