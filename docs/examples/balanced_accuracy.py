import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics import Metric


class BalancedAccuracy(Metric):
    """Mean over classes of the share of right labels."""

    name = "balanced_accuracy"
    source = "own example"
    higher_is_better = True
    losses = ("cross_entropy",)
    unit = "%"

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        """prediction [n, classes]; target [n], some of them missing."""
        there = target != MISSING_CLASS
        truth, right = target[there], prediction[there].argmax(-1) == target[there]
        counts = [torch.bincount(truth, weights, task.outputs) for weights in (right.double(), None)]
        return torch.cat(counts)

    def finish(self, task: Task, sums: Tensor) -> float:
        right, count = sums.chunk(2)
        return 100.0 * (right / count)[count > 0].mean().item()
