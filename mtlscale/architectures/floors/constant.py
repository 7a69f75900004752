"""Constant: predicts the same for every sample, the floor that every method has to rise above."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.fitted import FittedModule
from mtlscale.architectures.hooks import LabelledData
from mtlscale.config import MISSING_CLASS, Task, TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule

_RARE = 1e-6  # the probability of a class that no training label has


class ConstantModule(FittedModule):
    """The constant predictor: one vector [outputs] per task; for tasks with maps, the same at every position."""

    def __init__(self, suite: TaskSuite, maps: bool) -> None:
        super().__init__(suite)
        self.size = tuple(suite.input_shape[-2:]) if maps else ()
        self.per_token = suite.per_token
        for index, task in enumerate(suite.tasks):
            self.register_buffer(f"value{index}", torch.zeros(task.outputs))

    def forward(self, batch: Batch) -> Outputs:
        predictions = {}
        rows = batch.inputs.shape[:2].numel() if self.per_token else batch.inputs.shape[0]
        for name in batch.tasks:
            value = self.with_graph(name, self.get_buffer(f"value{self.index(name)}"))
            predictions[name] = value.reshape(1, -1, *[1] * len(self.size)).expand(rows, -1, *self.size)
        return Outputs(predictions)

    @torch.no_grad()
    def from_data(self, data: LabelledData) -> None:
        targets = data.targets()
        for name, task in self.tasks.items():
            self.get_buffer(f"value{self.index(name)}").copy_(best_constant(task, targets[name]))


def best_constant(task: Task, target: Tensor) -> Tensor:
    """Return the constant prediction [outputs] that has the smallest loss on labels [N, ...].

    It is class frequencies, a mean, a median (l1) or a mean direction (cosine), by the task's loss. Missing labels are
    ignored.
    """
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
    """The constant predictor: the best fit to the training labels that does not look at the inputs.

    It is computed before the first step: class frequencies (hence the majority), mean, median or mean direction, by the
    task's loss.
    """

    name: ClassVar[str] = "constant"
    source: ClassVar[str] = "own baseline: the best prediction without inputs"

    fitted: ClassVar[bool] = True

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return ConstantModule(suite, not suite.per_token and encoder().spatial)
