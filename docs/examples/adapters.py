from collections.abc import Callable
from typing import ClassVar

import torch
from torch import nn

from mtlscale.architectures import Architecture, MultiTaskModule, encoder_head
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class AdaptersModule(MultiTaskModule):
    """One encoder; for each task a small layer that is added to its features, and a head."""

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, rank: int, dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder
        size = encoder.features
        self.adapters = nn.ModuleList(nn.Sequential(nn.Linear(size, rank), nn.Linear(rank, size)) for _ in suite.tasks)
        for adapter in self.adapters:
            nn.init.zeros_(adapter[1].weight)  # at the start it is hard parameter sharing
            nn.init.zeros_(adapter[1].bias)
        self.heads = nn.ModuleList(encoder_head(encoder, task, dropout) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        features = self.encoder(batch.inputs)
        branches: dict[str, torch.Tensor] = {}
        for task in batch.tasks:
            branches[task] = features + self.adapters[self.names.index(task)](features)
        return Outputs({task: self.heads[self.names.index(task)](z) for task, z in branches.items()}, features)

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.encoder.parameters())

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.names.index(task)
        return [*self.adapters[place].parameters(), *self.heads[place].parameters()]


class Adapters(Architecture):
    """Hard parameter sharing with a low-rank layer per task behind the shared features."""

    name: ClassVar[str] = "adapters"
    source: ClassVar[str] = "own example"

    rank: int = knob(4, low=1, search=(1, 16, "log"), help="of the layer between features and head")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return AdaptersModule(suite, encoder(), self.rank, dropout)
