"""Fully connected layers over features, each a stage of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.encoders.dropout import Dropout


def relu_layers(sizes: Sequence[int], dropout: float) -> list[nn.Module]:
    """Build linear layer, ReLU and dropout from each of the sizes to the next."""
    return [
        nn.Sequential(nn.Linear(before, after), nn.ReLU(), Dropout(dropout))
        for before, after in itertools.pairwise(sizes)
    ]


def check_per_token(name: str, suite: TaskSuite) -> None:
    """Raise `UserError` if the suite has a task without a label for each token."""
    task: Task | None = next((task for task in suite.tasks if task.per != "token"), None)
    if task is not None:
        raise UserError(
            f"{name} gives features of tokens, task {task.name} of {suite.name} is of whole samples; choose another "
            "encoder"
        )
