"""Constant: predicts the same for every sample, the floor that every method has to rise above."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.architectures._base import Architecture, MultiTaskModule
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.spec import MISSING_CLASS, Task, TaskSuite

_RARE = 1e-6  # the probability of a class that no training label has


class ConstantModule(MultiTaskModule):
    """One vector [outputs] per task; where the tasks are maps, the same at every place. Training does not move it."""

    independent = True

    def __init__(self, suite: TaskSuite, maps: bool) -> None:
        super().__init__()
        self.tasks = {task.name: task for task in suite.tasks}
        self.size = tuple(suite.input_shape[-2:]) if maps else ()
        for index, task in enumerate(suite.tasks):
            self.register_buffer(f"value{index}", torch.zeros(task.outputs))
        # The loop trains parameters: these stay 0, since their gradients are 0 and decay keeps 0 where it is.
        self.nothing = nn.ParameterList(nn.Parameter(torch.zeros(())) for _ in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        predictions = {}
        for name in batch.tasks:
            index = self._index(name)
            value = self.get_buffer(f"value{index}") + 0.0 * self.nothing[index]
            predictions[name] = value.reshape(1, -1, *[1] * len(self.size)).expand(len(batch.inputs), -1, *self.size)
        return Outputs(predictions)

    @torch.no_grad()
    def from_data(self, targets: Mapping[str, Tensor]) -> None:
        for name, task in self.tasks.items():
            self.get_buffer(f"value{self._index(name)}").copy_(best_constant(task, targets[name]))

    def shared_parameters(self) -> list[nn.Parameter]:
        return []

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        return [self.nothing[self._index(task)]]

    def _index(self, name: str) -> int:
        return list(self.tasks).index(name)


def best_constant(task: Task, target: Tensor) -> Tensor:
    """The prediction [outputs] that has the smallest loss on labels [N, ...] among those that are the same everywhere:
    class frequencies, means, medians (l1), the mean direction (cosine). Missing labels count for nothing."""
    if task.loss == "cross_entropy":
        counts = torch.bincount(target[target != MISSING_CLASS].long().flatten(), minlength=task.outputs).double()
        return (counts / counts.sum().clamp(min=1)).clamp(min=_RARE).log()
    if not target.is_floating_point():
        target = torch.where(target == MISSING_CLASS, torch.nan, target.double())
    rows = target.double()
    rows = rows.movedim(1, -1) if task.outputs > 1 and rows.ndim > 2 else rows
    rows = rows.reshape(-1, task.outputs)
    if task.loss == "l1":
        return rows.nanmedian(0).values.nan_to_num()
    if task.loss == "cosine":
        return functional.normalize(functional.normalize(rows.nan_to_num(), dim=-1).sum(0), dim=0)
    mean = rows.nanmean(0).nan_to_num()
    if task.loss == "bce":
        return mean.logit(_RARE)
    return mean.clamp(min=_RARE).log() if task.loss == "soft_cross_entropy" else mean


class Constant(Architecture):
    """The constant predictor: what fits the training labels best without a look at the inputs, found before the first
    step. Class frequencies (hence the majority), mean, median or mean direction, by the task's loss."""

    name: ClassVar[str] = "constant"
    source: ClassVar[str] = "own baseline: the best prediction without inputs"

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return ConstantModule(suite, encoder().spatial)
