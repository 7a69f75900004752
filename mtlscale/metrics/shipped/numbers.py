"""Metrics of numbers. Definitions: docs/methods.md#metrics."""

from __future__ import annotations

import math

from mtlscale.config import Task
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.contract import Mean, Metric

NUMBERS: tuple[str, ...] = ("mse", "l1")
_ROUNDING = 1e-12  # a spread below this, relative to the mean, is the rounding error of float64 on equal numbers


class Mse(Mean):
    """Mean squared error."""

    name = "mse"
    higher_is_better = False
    losses = NUMBERS

    @staticmethod
    def values(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target) ** 2


class Rmse(Mse):
    """Root of the mean squared error over the split."""

    name = "rmse"
    in_units = True

    def finish(self, task: Task, mean: float) -> float:
        return math.sqrt(mean)


class Mae(Mean):
    """Mean absolute error."""

    name = "mae"
    higher_is_better = False
    losses = NUMBERS
    in_units = True

    def values(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).abs()


class Welsch(Mean):
    """Mean of 1 − exp(−|e|²), e the error of a sample."""

    name = "welsch"
    higher_is_better = False
    losses = ("welsch",)
    highest = 1.0

    def values(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        return -torch.expm1(-((prediction - target) ** 2).sum(-1))


class Pearson(Metric):
    """Correlation of labels and predictions, mean over outputs that vary in both.

    Counts, means and squares about the means are merged over batches and workers, so that no precision is lost by
    cancellation.
    """

    name = "pearson"
    higher_is_better = True
    losses = NUMBERS
    lowest = -1.0
    highest = 1.0

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        pairs = zip(prediction.unbind(-1), target.unbind(-1), strict=True)
        return torch.stack([moments(x[~y.isnan()].double(), y[~y.isnan()].double()) for x, y in pairs])

    def merge(self, total: Tensor, added: Tensor) -> Tensor:
        n, m = total[..., 0], added[..., 0]
        count = n + m
        share = m / count.clamp(min=1.0)

        dx, dy = added[..., 1] - total[..., 1], added[..., 2] - total[..., 2]
        squares = (
            total[..., 3:] + added[..., 3:] + torch.stack([dx * dx, dy * dy, dx * dy], -1) * (n * share).unsqueeze(-1)
        )
        means = total[..., 1:3] + torch.stack([dx, dy], -1) * share.unsqueeze(-1)
        return torch.cat([count.unsqueeze(-1), means, squares], -1)

    def finish(self, task: Task, moments: Tensor) -> float:
        return mean_defined([coefficient(row) for row in moments])


def mean_defined(values: list[float]) -> float:
    """Return the mean of the values that are not NaN; NaN without one."""
    defined = [value for value in values if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan


def moments(x: Tensor, y: Tensor) -> Tensor:
    """Return the moments [6] of samples [n]: n, both means, Σdx², Σdy², Σdxdy."""
    if not len(x):
        return x.new_zeros(6)
    mean_x, mean_y = x.mean(), y.mean()
    dx, dy = x - mean_x, y - mean_y
    return torch.stack([x.new_tensor(float(len(x))), mean_x, mean_y, (dx * dx).sum(), (dy * dy).sum(), (dx * dy).sum()])


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
