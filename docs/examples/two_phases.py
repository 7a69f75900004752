"""Two phases in one file: the second trains a network built from what the first has found.

The search mixes, for every task, the shared encoder's features with those of a private one, by a learned σ(α_t). What
it hands over is which tasks prefer to be alone; the retraining builds hard sharing for the others from scratch. The
search always uses equal weights and seed 0, so runs with other balancers or seeds reuse it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from mtlscale.architectures import Architecture, MultiTaskModule, Phase, PhaseOutput, Turn, encoder_head
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class MixtureModule(MultiTaskModule):
    """A shared encoder, a private one per task, and how much each task takes of the private one."""

    def __init__(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.shared = encoder()
        self.private = nn.ModuleList(encoder() for _ in suite.tasks)
        self.alpha = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in suite.tasks)
        self.heads = nn.ModuleList(encoder_head(self.shared, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        common, found = self.shared(batch.inputs), {}
        for task in batch.tasks:
            place = self.names.index(task)
            share = self.alpha[place].sigmoid()
            found[task] = self.heads[place](share * self.private[place](batch.inputs) + (1 - share) * common)
        return Outputs(found)

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.shared.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.names.index(task)
        return [self.alpha[place], *self.private[place].parameters(), *self.heads[place].parameters()]

    def phase_output(self) -> PhaseOutput:
        return {"alone": [name for name, a in zip(self.names, self.alpha, strict=True) if a.item() > 0]}


class PartlySharedModule(MultiTaskModule):
    """One encoder for the tasks that share, one for each that does not."""

    def __init__(
        self, suite: TaskSuite, alone: list[str], encoder: Callable[[], EncoderModule], dropout: float
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.common = encoder()
        self.own = nn.ModuleDict({name: encoder() for name in alone})
        self.heads = nn.ModuleList(encoder_head(self.common, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        common = self.common(batch.inputs) if any(task not in self.own for task in batch.tasks) else None
        features = {task: self.own[task](batch.inputs) if task in self.own else common for task in batch.tasks}
        return Outputs({task: self.heads[self.names.index(task)](z) for task, z in features.items()})

    def shared_parameters(self) -> list[nn.Parameter]:
        return [] if len(self.own) == len(self.names) else list(self.common.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        own = list(self.own[task].parameters()) if task in self.own else []
        return [*own, *self.heads[self.names.index(task)].parameters()]


class SearchedSharing(Architecture):
    """Search which tasks should have an encoder of their own, then train that network from scratch."""

    name: ClassVar[str] = "searched_sharing"
    source: ClassVar[str] = "own example"

    search_epochs: int = knob(2, low=1, help="epochs of the search")

    def phases(self) -> tuple[Phase, ...]:
        search = Phase(name="search", epochs=self.search_epochs, choose="last", seed=0, turns=(Turn(balancer=Equal()),))
        return search, Phase(name="retrain")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return MixtureModule(suite, encoder, dropout)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        return PartlySharedModule(suite, found["alone"], encoder, dropout)
