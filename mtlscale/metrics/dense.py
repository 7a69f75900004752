"""Metrics of dense prediction: mean IoU of segmentation, depth errors, angles of normals, F over thresholds.

Each is fed with the rows of `mtlscale.metrics.tasks` (one per pixel), holds sums or counts over the whole split, and
adds them up over workers when it is read, so a metric depends neither on the batch size nor on the number of workers.
Definitions: docs/methods.md#metrics.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics.accumulators import SumsAccumulator, over_workers

WITHIN = (11.25, 22.5, 30.0)  # degrees
_LEVELS = 256  # levels of a saliency map
_BETA_SQUARED = 0.3  # β² of F, docs/methods.md#metrics
_HALF_BITS = 16  # the median is found by two histograms over halves of the 32 bits


class Confusion(SumsAccumulator):
    """Confusion matrix: a count for each pair of true and predicted class.

    `miou`: mean over the classes that occur in truth or prediction of TP / (TP + FP + FN), a fraction.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(task.outputs**2, torch.int64)
        self.classes = task.outputs

    def update(self, prediction: Tensor, target: Tensor) -> None:
        valid = target != MISSING_CLASS
        pair = target[valid] * self.classes + prediction[valid].argmax(-1)
        self.sums += torch.bincount(pair, minlength=self.classes**2)

    def compute(self) -> dict[str, float]:
        matrix = over_workers(self.sums).reshape(self.classes, self.classes).double()
        hit, union = matrix.diagonal(), matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
        occurs = union > 0
        return {"miou": (hit[occurs] / union[occurs]).mean().item()}


class DepthErrors(SumsAccumulator):
    """Depth errors over valid pixels (d > 0), pooled over the split.

    `abs`, `rel`: means of |d̂ − d| and |d̂ − d| / d.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(3)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        valid = target > 0  # false for NaN, too
        truth = target[valid].double()
        error = (prediction[valid].double() - truth).abs()
        self.sums += torch.stack([error.sum(), (error / truth).sum(), valid.sum().double()])

    def compute(self) -> dict[str, float]:
        absolute, relative, count = over_workers(self.sums).tolist()
        return {"abs": absolute / count, "rel": relative / count} if count else {"abs": math.nan, "rel": math.nan}


class MaxF(SumsAccumulator):
    """Largest F-measure over 256 thresholds on the probability of the last class (or of the one output).

    `f`: the largest F = (1 + β²) P R / (β² P + R), β² = 0.3, with precision and recall pooled over the split. A
    fraction; 0 without a hit.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(2 * _LEVELS, torch.int64)
        self.classes = task.outputs

    def update(self, prediction: Tensor, target: Tensor) -> None:
        prediction = prediction.double()
        if target.is_floating_point():
            valid = ~target.isnan()
            probability, truth = prediction[valid].sigmoid(), target[valid] > 0.5
        else:
            valid = target != MISSING_CLASS
            probability, truth = prediction[valid].softmax(-1)[:, -1], target[valid] == self.classes - 1

        level = (probability * (_LEVELS - 1)).round().long()
        self.sums += torch.bincount(truth.long() * _LEVELS + level, minlength=2 * _LEVELS)

    def compute(self) -> dict[str, float]:
        counts = over_workers(self.sums).reshape(2, _LEVELS).double()
        if not counts.sum():
            return {"f": math.nan}
        wrong, right = counts.flip(1).cumsum(1)  # counts at or above each threshold
        precision, recall = right / (wrong + right).clamp(min=1), right / counts[1].sum().clamp(min=1)
        below = _BETA_SQUARED * precision + recall
        score = (1 + _BETA_SQUARED) * precision * recall / below.clamp(min=torch.finfo(below.dtype).tiny)
        return {"f": score.max().item()}


class Angles(SumsAccumulator):
    """Angles in degrees between predicted and true normals on valid pixels (n ≠ 0).

    `mean`, `rmse`, `median` and the fractions `within` 11.25, 22.5 and 30.

    The median is exact (of the angles as float32) and needs no worker to hold more than its own: all workers count
    their angles by the upper half of the bits, then by the lower half within the one bin that contains the median.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(3 + len(WITHIN))
        self.angles: list[Tensor] = []  # [n] float32 each

    def to(self, device: torch.device | str) -> Angles:
        super().to(device)
        self.angles = [angle.to(device) for angle in self.angles]
        return self

    def reset(self) -> None:
        super().reset()
        self.angles = []

    def update(self, prediction: Tensor, target: Tensor) -> None:
        valid = (target != 0).any(-1) & ~target.isnan().any(-1)
        truth = functional.normalize(target[valid].double(), dim=-1)
        cosine = (functional.normalize(prediction[valid].double(), dim=-1) * truth).sum(-1)

        angle = cosine.clamp(-1.0, 1.0).arccos().rad2deg()
        self.angles.append(angle.float())
        within = [(angle < bound).sum().double() for bound in WITHIN]
        self.sums += torch.stack([valid.sum().double(), angle.sum(), angle.square().sum(), *within])

    def compute(self) -> dict[str, float]:
        count, total, squares, *within = over_workers(self.sums).tolist()
        if not count:
            return dict.fromkeys(("mean", "rmse", "median", *map(str, WITHIN)), math.nan)

        angles = torch.cat(self.angles) if self.angles else self.sums.new_zeros(0, dtype=torch.float32)
        middle = [_order_statistic(angles, rank) for rank in {(int(count) - 1) // 2, int(count) // 2}]
        return {
            "mean": total / count,
            "rmse": math.sqrt(squares / count),
            "median": sum(middle) / len(middle),
            **{str(bound): value / count for bound, value in zip(WITHIN, within, strict=True)},
        }


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
