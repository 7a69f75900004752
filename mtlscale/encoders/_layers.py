"""Fully connected layers over features, each a stage of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from torch import nn

from mtlscale.encoders._dropout import Dropout
from mtlscale.spec import Task, TaskSuite, UserError


def relu_layers(sizes: Sequence[int], dropout: float) -> list[nn.Module]:
    """Linear, ReLU, dropout: from each of the sizes to the next."""
    return [
        nn.Sequential(nn.Linear(before, after), nn.ReLU(), Dropout(dropout))
        for before, after in itertools.pairwise(sizes)
    ]


def check_per_token(name: str, suite: TaskSuite) -> None:
    """`UserError` where the suite's tasks have no label for each token."""
    task: Task | None = next((task for task in suite.tasks if task.per != "token"), None)
    if task is not None:
        raise UserError(
            f"{name} gives features of tokens, task {task.name} of {suite.name} is of whole samples; choose another "
            "encoder"
        )
