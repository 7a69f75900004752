"""F1 of classes, of one label and of several labels, from counts over the split."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics.accumulators import SumsAccumulator, over_workers


class F1(SumsAccumulator):
    """F1 = 2 tp / (2 tp + fp + fn).

    With classes its mean over those that occur in truth or prediction; with one label that of the positive class; with
    several labels its mean over them, 0 of a label that never occurs.
    """

    def __init__(self, task: Task) -> None:
        self.classes = task.loss == "cross_entropy"
        super().__init__(3 * task.outputs, dtype=torch.int64)  # right, answered and true, of each class or label

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if self.classes:
            present = (target != MISSING_CLASS).unsqueeze(-1)
            answers = functional.one_hot(prediction.argmax(-1), prediction.shape[-1]).bool()
            truth = functional.one_hot(target.clamp(min=0), prediction.shape[-1]).bool()
        else:
            present, answers, truth = ~target.isnan(), prediction > 0, target == 1

        counted = torch.stack([answers & truth, answers, truth]) & present
        self.sums += counted.sum(1).flatten()

    def compute(self) -> float:
        right, answered, true = over_workers(self.sums).view(3, -1)
        # In single precision, in which published results of this package were computed.
        scores = 2 * right.float() / (answered + true).clamp(min=1).float()
        occurs = ((answered + true) > 0).float() if self.classes else torch.ones_like(scores)
        return float((scores * occurs / occurs.sum().clamp(min=1)).sum())
