from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics import Accumulator, Metric, SumsAccumulator, over_workers


class Recalls(SumsAccumulator):
    """Right labels of each class, then all of each class."""

    def __init__(self, task: Task) -> None:
        super().__init__(2 * task.outputs)
        self.classes = task.outputs

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """prediction [n, classes]; target [n], some of them missing."""
        there = target != MISSING_CLASS
        truth, right = target[there], prediction[there].argmax(-1) == target[there]
        counts = (torch.bincount(truth, weights, self.classes) for weights in (right.double(), None))
        self.sums += torch.cat(list(counts))

    def compute(self) -> float:
        right, count = over_workers(self.sums).chunk(2)
        return 100.0 * (right / count)[count > 0].mean().item()


class BalancedAccuracy(Metric):
    """Mean over classes of the share of right labels."""

    name: ClassVar[str] = "balanced_accuracy"
    source: ClassVar[str] = "own example"
    higher_is_better: ClassVar[bool] = True
    losses: ClassVar[tuple[str, ...]] = ("cross_entropy",)
    unit: ClassVar[str] = "%"

    def accumulator(self, task: Task) -> Accumulator:
        return Recalls(task)
