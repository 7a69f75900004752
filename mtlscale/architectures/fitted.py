"""The base of the floors: predictors that are computed from the data before the first step and never trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.config import TaskSuite


class FittedModule(MultiTaskModule):
    """Base class of fitted predictors: nothing is shared or trained, and buffers hold what was computed."""

    independent = True

    def __init__(self, suite: TaskSuite) -> None:
        super().__init__()
        self.tasks = {task.name: task for task in suite.tasks}
        # The training loop needs parameters. These stay 0: their gradients are 0, and weight decay does not change 0.
        self.nothing = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in suite.tasks)

    def shared_parameters(self) -> list[nn.Parameter]:
        return []

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [self.nothing[self.index(task)]]

    def extra_parameter_count(self) -> int:
        return sum(buffer.numel() for name, buffer in self.named_buffers() if name.startswith("value"))

    def index(self, task: str) -> int:
        return list(self.tasks).index(task)

    def with_graph(self, task: str, prediction: Tensor) -> Tensor:
        """Return the same values with a graph, so that the training loop can differentiate them."""
        zero: Tensor = self.nothing[self.index(task)]
        return prediction + 0.0 * zero.to(prediction)
