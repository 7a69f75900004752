"""Predictors that are computed from the data before the first step, and that training does not move: the floors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import MultiTaskModule
from mtlscale.spec import TaskSuite


class FittedModule(MultiTaskModule):
    """Nothing is shared, nothing is trained; what was computed is in buffers."""

    independent = True

    def __init__(self, suite: TaskSuite) -> None:
        super().__init__()
        self.tasks = {task.name: task for task in suite.tasks}
        # The loop trains parameters: these stay 0, since their gradients are 0 and decay keeps 0 where it is.
        self.nothing = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in suite.tasks)

    def shared_parameters(self) -> list[nn.Parameter]:
        return []

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [self.nothing[self.index(task)]]

    def learned(self) -> int:
        return sum(buffer.numel() for name, buffer in self.named_buffers() if name.startswith("value"))

    def index(self, task: str) -> int:
        return list(self.tasks).index(task)

    def with_graph(self, task: str, prediction: Tensor) -> Tensor:
        """The same numbers, which the loop can differentiate."""
        nothing: Tensor = self.nothing[self.index(task)]
        return prediction + 0.0 * nothing.to(prediction)
