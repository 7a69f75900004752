"""Metrics of dense prediction: mean IoU of segmentation, depth errors, angles of normals, F over thresholds.

Their rows are pixels, pooled over the whole split. Definitions: docs/methods.md#metrics.
"""

from __future__ import annotations

import math
from typing import ClassVar

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.accumulators import Accumulator, over_workers
from mtlscale.metrics.contract import Mean, Metric
from mtlscale.metrics.shipped.labels import CLASSES, Accuracy, Error
from mtlscale.metrics.shipped.numbers import NUMBERS

_LEVELS = 256  # levels of a saliency map
_BETA_SQUARED = 0.3  # β² of F, docs/methods.md#metrics
_HALF_BITS = 16  # the median is found by two histograms over halves of the 32 bits


class MeanIou(Metric):
    """Mean over classes of intersection over union, from one confusion matrix over the split.

    The mean of TP / (TP + FP + FN) is over the classes that occur in truth or prediction.
    """

    name = "miou"
    higher_is_better = True
    losses = ("cross_entropy",)
    unit = "%"

    def item_sums(self, task: Task, prediction: Tensor, target: Tensor, items: int) -> Tensor:
        """Return a count for each pair of true and predicted class."""
        item = torch.arange(items, device=target.device).repeat_interleave(len(target) // max(items, 1))
        valid = target != MISSING_CLASS
        cells = (item[valid] * task.outputs + target[valid]) * task.outputs + prediction[valid].argmax(-1)
        counts = torch.bincount(cells, minlength=items * task.outputs**2)
        return counts.reshape(items, task.outputs**2).double()

    def finish(self, task: Task, sums: Tensor) -> float:
        matrix = sums.reshape(task.outputs, task.outputs)
        hit, union = matrix.diagonal(), matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
        occurs = union > 0
        return 100.0 * (hit[occurs] / union[occurs]).mean().item()


class PixelAccuracy(Accuracy):
    """Right pixels among those with a label."""

    name = "pixel_accuracy"
    losses = ("cross_entropy",)


class PixelError(Error):
    """100 − pixel accuracy."""

    name = "pixel_error"
    losses = ("cross_entropy",)


class AbsoluteError(Mean):
    """Mean absolute depth error over valid pixels (d > 0)."""

    name = "abs_err"
    higher_is_better = False
    losses = NUMBERS
    in_units = True

    @staticmethod
    def present(task: Task, target: Tensor) -> Tensor:
        return target > 0  # false for NaN, too

    def values(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction.double() - target.double()).abs()


class RelativeError(AbsoluteError):
    """Mean of the depth error over the true depth."""

    name = "rel_err"
    in_units = False

    def values(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        return super().values(task, prediction, target) / target.double()


class AngleMean(Mean):
    """Mean angle to the true normal, over valid pixels (n ≠ 0)."""

    name = "angle_mean"
    higher_is_better = False
    losses = ("cosine",)
    unit = "°"

    @staticmethod
    def present(task: Task, target: Tensor) -> Tensor:
        return (target != 0).any(-1) & ~target.isnan().any(-1)

    @staticmethod
    def values(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        truth = torch.nn.functional.normalize(target.double(), dim=-1)
        cosine = (torch.nn.functional.normalize(prediction.double(), dim=-1) * truth).sum(-1)
        return cosine.clamp(-1.0, 1.0).arccos().rad2deg()


class AngleRmse(AngleMean):
    """Root of the mean squared angle."""

    name = "angle_rmse"

    def averaged(self, angles: Tensor) -> Tensor:
        return angles.square()

    def finish(self, task: Task, mean: float) -> float:
        return math.sqrt(mean)


class Within11(AngleMean):
    """Normals less than 11.25° off."""

    name = "within_11.25"
    higher_is_better = True
    unit = "%"
    bound: ClassVar[float] = 11.25

    def averaged(self, angles: Tensor) -> Tensor:
        return angles < self.bound

    def finish(self, task: Task, mean: float) -> float:
        return 100.0 * mean


class Within22(Within11):
    """Normals less than 22.5° off."""

    name = "within_22.5"
    bound = 22.5


class Within30(Within11):
    """Normals less than 30° off."""

    name = "within_30"
    bound = 30.0


class AngleMedian(Metric):
    """Exact median of the angles of all valid pixels."""

    name = "angle_median"
    higher_is_better = False
    losses = ("cosine",)
    unit = "°"

    def accumulator(self, task: Task) -> Accumulator:
        return Median(task, AngleMean())


class Median:
    """Exact median of a mean's values (as float32, none of them negative).

    It needs no worker to hold more than its own: all workers count their values by the upper half of the bits, then by
    the lower half within the one bin that contains the median.
    """

    def __init__(self, task: Task, of: Mean) -> None:
        self.task, self.of = task, of
        self.batches: list[Tensor] = []  # [n] float32 each

    def to(self, device: torch.device | str) -> Median:
        self.batches = [values.to(device) for values in self.batches]
        return self

    def reset(self) -> None:
        self.batches = []

    def update(self, *rows: Tensor) -> None:
        prediction, target = rows
        valid = self.of.present(self.task, target)
        self.batches.append(self.of.values(self.task, prediction[valid], target[valid]).float())

    def compute(self) -> float:
        values = torch.cat(self.batches)
        count = int(over_workers(torch.tensor(len(values), device=values.device)))
        middle = [_order_statistic(values, rank) for rank in {(count - 1) // 2, count // 2}] if count else [math.nan]
        return sum(middle) / len(middle)


class MaxF(Metric):
    """Largest F (β² = 0.3) over 256 thresholds on the saliency map, pooled over the split.

    F = (1 + β²) P R / (β² P + R); the map is the probability of the last class, or of the one output. 0 without a hit.
    """

    name = "max_f"
    higher_is_better = True
    losses = CLASSES
    unit = "%"

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        prediction = prediction.double()
        if target.is_floating_point():
            valid = ~target.isnan()
            probability, truth = prediction[valid].sigmoid(), target[valid] > 0.5
        else:
            valid = target != MISSING_CLASS
            probability, truth = prediction[valid].softmax(-1)[:, -1], target[valid] == task.outputs - 1

        level = (probability * (_LEVELS - 1)).round().long()
        return torch.bincount(truth.long() * _LEVELS + level, minlength=2 * _LEVELS)

    def finish(self, task: Task, sums: Tensor) -> float:
        counts = sums.reshape(2, _LEVELS).double()
        wrong, right = counts.flip(1).cumsum(1)  # counts at or above each threshold
        precision, recall = right / (wrong + right).clamp(min=1), right / counts[1].sum().clamp(min=1)
        below = _BETA_SQUARED * precision + recall
        score = (1 + _BETA_SQUARED) * precision * recall / below.clamp(min=torch.finfo(below.dtype).tiny)
        return 100.0 * float(score.max())


def _order_statistic(mine: Tensor, rank: int) -> float:
    """Return the value of `rank`, from 0, among all workers' values; `mine` [n] is float32 and not negative."""
    bits = mine.view(torch.int32)  # for numbers that are not negative, the bits have the order of the numbers
    upper, lower = bits >> _HALF_BITS, bits & ((1 << _HALF_BITS) - 1)
    high, below = _bin_of(upper, rank)
    low, _ = _bin_of(lower[upper == high], rank - below)
    return torch.tensor((high << _HALF_BITS) | low, dtype=torch.int32).view(torch.float32).item()


def _bin_of(values: Tensor, rank: int) -> tuple[int, int]:
    """Return the value in [0, 2¹⁶) of a rank over all workers, and the number of smaller values."""
    counts = over_workers(torch.bincount(values, minlength=1 << _HALF_BITS))
    up_to = counts.cumsum(0)
    bin_index = int(torch.searchsorted(up_to, rank, right=True))
    return bin_index, int(up_to[bin_index] - counts[bin_index])
