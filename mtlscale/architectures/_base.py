"""The contract of an architecture: which parameters the tasks share, and one prediction per task."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from torch import nn

from mtlscale.components import Component
from mtlscale.encoders._base import EncoderModule
from mtlscale.encoders._dropout import Dropout
from mtlscale.tasks import Batch, Outputs, Task, TaskSuite

HeadMaker = Callable[[int, Task, float], nn.Module]  # (features, task, dropout) -> [B, features] to [B, outputs]


class MultiTaskModule(nn.Module):
    """A network for several tasks that names its partition into shared and task parameters."""

    # True where no parameter is shared, so that every task may keep the checkpoint of its own best epoch.
    independent: bool = False
    # True where the backward passes of several tasks from the representation down may run as one batched pass.
    vectorised: bool = False

    def forward(self, batch: Batch) -> Outputs:
        """One stream's batch -> a prediction [B, outputs] for each of the batch's tasks."""
        raise NotImplementedError

    def shared_parameters(self) -> list[nn.Parameter]:
        """What more than one task's loss moves; task gradients are balanced here."""
        raise NotImplementedError

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        """What this task's loss alone moves."""
        raise NotImplementedError

    def on_epoch_end(self, epoch: int) -> None:
        """After the steps of an epoch, counted from 1, and before it is evaluated."""


class Architecture(Component):
    """A recipe of a multi-task network."""

    kind: ClassVar[str] = "architectures"

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        """A fresh network; `encoder()` makes one freshly initialised encoder, `dropout` precedes the heads."""
        raise NotImplementedError


def linear_head(features: int, task: Task, dropout: float) -> nn.Module:
    """Dropout and one linear layer: features [B, F] -> prediction [B, outputs]."""
    return nn.Sequential(Dropout(dropout), nn.Linear(features, task.outputs))
