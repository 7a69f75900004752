"""Accumulators of correlations, and of metrics computed from counts of right and wrong answers.

Definitions: docs/methods.md#metrics.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics.accumulators import SumsAccumulator, of_workers, over_workers

_ROUNDING = 1e-12  # a spread below this, relative to the mean, is the rounding error of float64 on equal numbers


class Pearson:
    """Correlation of labels and predictions, mean over outputs that vary in both.

    Counts, means and squares about the means are merged over batches and workers, so that no precision is lost by
    cancellation.
    """

    def __init__(self, task: Task) -> None:
        self.moments = torch.zeros(task.outputs, 6, dtype=torch.float64)  # n, two means, Σdx², Σdy², Σdxdy

    def to(self, device: torch.device | str) -> Pearson:
        self.moments = self.moments.to(device)
        return self

    def reset(self) -> None:
        self.moments = torch.zeros_like(self.moments)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        batch_moments = [
            moments(x[~y.isnan()].double(), y[~y.isnan()].double())
            for x, y in zip(prediction.unbind(-1), target.unbind(-1), strict=True)
        ]
        self.moments = merged(self.moments, torch.stack(batch_moments))

    def compute(self) -> float:
        total = torch.zeros_like(self.moments)
        for worker_moments in of_workers(self.moments):
            total = merged(total, worker_moments)
        coefficients = [coefficient(row) for row in total]
        defined = [value for value in coefficients if not math.isnan(value)]
        return sum(defined) / len(defined) if defined else math.nan


def moments(x: Tensor, y: Tensor) -> Tensor:
    """Return the moments [6] of samples [n]: n, both means, Σdx², Σdy², Σdxdy."""
    if not len(x):
        return x.new_zeros(6)
    mean_x, mean_y = x.mean(), y.mean()
    dx, dy = x - mean_x, y - mean_y
    return torch.stack([x.new_tensor(float(len(x))), mean_x, mean_y, (dx * dx).sum(), (dy * dy).sum(), (dx * dy).sum()])


def merged(first: Tensor, second: Tensor) -> Tensor:
    """Return the moments [..., 6] of the union of two sets of samples."""
    n, m = first[..., 0], second[..., 0]
    total = n + m
    share = m / total.clamp(min=1.0)

    dx, dy = second[..., 1] - first[..., 1], second[..., 2] - first[..., 2]
    squares = (
        first[..., 3:] + second[..., 3:] + torch.stack([dx * dx, dy * dy, dx * dy], -1) * (n * share).unsqueeze(-1)
    )
    means = first[..., 1:3] + torch.stack([dx, dy], -1) * share.unsqueeze(-1)
    return torch.cat([total.unsqueeze(-1), means, squares], -1)


def coefficient(row: Tensor) -> float:
    """Return Pearson's coefficient of moments [6]; NaN if one side does not vary."""
    n, mean_x, mean_y, xx, yy, xy = map(float, row.tolist())
    for squares, mean in ((xx, mean_x), (yy, mean_y)):
        if not squares > n * (_ROUNDING * abs(mean)) ** 2:
            return math.nan
    return max(-1.0, min(1.0, xy / math.sqrt(xx) / math.sqrt(yy)))


def correlation(x: Tensor, y: Tensor) -> float:
    """Return Pearson's coefficient of samples [n], float64."""
    return coefficient(moments(x, y))


class Matthews(SumsAccumulator):
    """Matthews correlation: of classes from one confusion matrix, of single labels the mean over them."""

    def __init__(self, task: Task) -> None:
        self.exclusive = task.loss == "cross_entropy"
        self.tables, self.classes = (1, task.outputs) if self.exclusive else (task.outputs, 2)
        super().__init__(self.tables * self.classes**2, torch.int64)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if self.exclusive:
            present = target != MISSING_CLASS
            cells = target[present] * self.classes + prediction[present].argmax(-1)
        else:
            present = ~target.isnan()
            table = torch.arange(self.tables, device=target.device).expand_as(target)
            cells = table[present] * 4 + (target[present] > 0.5).long() * 2 + (prediction[present] > 0).long()

        self.sums += torch.bincount(cells, minlength=len(self.sums))

    def compute(self) -> float:
        tables = over_workers(self.sums).reshape(self.tables, self.classes, self.classes).double()
        coefficients = [_matthews(table) for table in tables if table.sum() > 0]
        return sum(coefficients) / len(coefficients) if coefficients else math.nan


def _matthews(table: Tensor) -> float:
    """Return the Matthews correlation of a confusion matrix; 0 if labels or answers are all of one class."""
    total, right = table.sum(), table.diagonal().sum()
    truth, answers = table.sum(1), table.sum(0)
    spread = (total**2 - (truth**2).sum()) * (total**2 - (answers**2).sum())
    return ((right * total - (truth * answers).sum()) / spread.sqrt()).item() if spread > 0 else 0.0


class PositiveF1(SumsAccumulator):
    """F1 of the positive class, the last of two: 2 TP / (2 TP + FP + FN).

    It is 0 if there is no positive among labels and answers.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(2, torch.int64)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if target.is_floating_point():
            present = ~target.isnan()
            truth, answer = target[present] > 0.5, prediction[present] > 0
        else:
            present = target != MISSING_CLASS
            truth, answer = target[present] == 1, prediction[present].argmax(-1) == 1
        self.sums += torch.stack([(truth & answer).sum(), truth.sum() + answer.sum()])

    def compute(self) -> float:
        hits, positives = over_workers(self.sums).tolist()
        return float(2 * hits / positives) if positives else 0.0
