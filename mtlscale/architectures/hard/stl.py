"""Single-task learning: a network of its own for every task, trained side by side in the one training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import nn

from mtlscale.architectures.contract import Architecture, HeadMaker, MultiTaskModule, encoder_head
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class STLModule(MultiTaskModule):
    """Separate networks: an encoder and `head(encoder, task, dropout)` for each task."""

    independent = True

    def __init__(
        self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float, head: HeadMaker = encoder_head
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoders = nn.ModuleList(encoder() for _ in suite.tasks)
        self.heads = nn.ModuleList(
            head(enc, task, dropout)  # type: ignore[arg-type]
            for enc, task in zip(self.encoders, suite.tasks, strict=True)
        )

    def forward(self, batch: Batch) -> Outputs:
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            predictions[task] = self.heads[index](self.encoders[index](batch.inputs))
        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        return []

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [*self.encoders[index].parameters(), *self.heads[index].parameters()]


class STL(Architecture):
    """Single-task learning: the same encoder and head as `hps`, one of each per task, nothing shared."""

    name: ClassVar[str] = "stl"
    source: ClassVar[str] = "own statement of the common baseline: single-task learning"
    batchable: ClassVar[bool] = True

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return STLModule(suite, encoder, dropout)
