"""Accumulators of what is measured pixel by pixel: confusion, depth errors, angles of normals, F over thresholds.

Each is fed with the rows of `mtlscale.metrics.tasks` (a pixel a row), holds sums or counts over the whole split, and
adds them up over workers when it is read, so a figure depends neither on the batch size nor on the number of workers.
Definitions: docs/methods.md#metrics.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.metrics.accumulators import SumsAccumulator, over_workers
from mtlscale.spec import MISSING_CLASS, Task

WITHIN = (11.25, 22.5, 30.0)  # degrees
_LEVELS = 256  # of a saliency map
_BETA_SQUARED = 0.3  # of F, docs/methods.md#metrics
_HALF_BITS = 16  # the median is found by two histograms over halves of the 32 bits


class Confusion(SumsAccumulator):
    """Truth against prediction, a count for each pair of classes. `miou`: mean over the classes that occur in truth or
    prediction of TP / (TP + FP + FN), a fraction."""

    def __init__(self, task: Task) -> None:
        super().__init__(task.outputs**2, torch.int64)
        self.classes = task.outputs

    def update(self, prediction: Tensor, target: Tensor) -> None:
        kept = target != MISSING_CLASS
        pair = target[kept] * self.classes + prediction[kept].argmax(-1)
        self.sums += torch.bincount(pair, minlength=self.classes**2)

    def compute(self) -> dict[str, float]:
        matrix = over_workers(self.sums).reshape(self.classes, self.classes).double()
        hit, union = matrix.diagonal(), matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
        occurs = union > 0
        return {"miou": (hit[occurs] / union[occurs]).mean().item()}


class DepthErrors(SumsAccumulator):
    """`abs`, `rel`: means over valid pixels (d > 0) of |d̂ − d| and |d̂ − d| / d, pooled over the split."""

    def __init__(self, task: Task) -> None:
        super().__init__(3)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        kept = target > 0  # false for NaN, too
        truth = target[kept].double()
        error = (prediction[kept].double() - truth).abs()
        self.sums += torch.stack([error.sum(), (error / truth).sum(), kept.sum().double()])

    def compute(self) -> dict[str, float]:
        absolute, relative, count = over_workers(self.sums).tolist()
        return {"abs": absolute / count, "rel": relative / count} if count else {"abs": math.nan, "rel": math.nan}


class MaxF(SumsAccumulator):
    """`f`: the largest F = (1 + β²) P R / (β² P + R), β² = 0.3, over 256 thresholds on the probability of the last
    class (or of the one output), precision and recall pooled over the split. A fraction; 0 without a hit."""

    def __init__(self, task: Task) -> None:
        super().__init__(2 * _LEVELS, torch.int64)
        self.classes = task.outputs

    def update(self, prediction: Tensor, target: Tensor) -> None:
        prediction = prediction.double()
        if target.is_floating_point():
            kept = ~target.isnan()
            chance, truth = prediction[kept].sigmoid(), target[kept] > 0.5
        else:
            kept = target != MISSING_CLASS
            chance, truth = prediction[kept].softmax(-1)[:, -1], target[kept] == self.classes - 1
        level = (chance * (_LEVELS - 1)).round().long()
        self.sums += torch.bincount(truth.long() * _LEVELS + level, minlength=2 * _LEVELS)

    def compute(self) -> dict[str, float]:
        counts = over_workers(self.sums).reshape(2, _LEVELS).double()
        if not counts.sum():
            return {"f": math.nan}
        wrong, right = counts.flip(1).cumsum(1)  # what lies at or above each threshold
        precision, recall = right / (wrong + right).clamp(min=1), right / counts[1].sum().clamp(min=1)
        below = _BETA_SQUARED * precision + recall
        score = (1 + _BETA_SQUARED) * precision * recall / below.clamp(min=torch.finfo(below.dtype).tiny)
        return {"f": score.max().item()}


class Angles(SumsAccumulator):
    """Angles in degrees between predicted and true normals on valid pixels (n ≠ 0): `mean`, `rmse`, `median` and the
    fractions `within` 11.25, 22.5 and 30.

    The median is exact (of the angles as float32) and needs no worker to hold more than its own: all workers count
    their angles by the upper half of the bits, then by the lower half within the one bin the median lies in.
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
        kept = (target != 0).any(-1) & ~target.isnan().any(-1)
        truth = functional.normalize(target[kept].double(), dim=-1)
        cosine = (functional.normalize(prediction[kept].double(), dim=-1) * truth).sum(-1)
        angle = cosine.clamp(-1.0, 1.0).arccos().rad2deg()
        self.angles.append(angle.float())
        within = [(angle < bound).sum().double() for bound in WITHIN]
        self.sums += torch.stack([kept.sum().double(), angle.sum(), angle.square().sum(), *within])

    def compute(self) -> dict[str, float]:
        count, total, squares, *within = over_workers(self.sums).tolist()
        if not count:
            return dict.fromkeys(("mean", "rmse", "median", *map(str, WITHIN)), math.nan)
        mine = torch.cat(self.angles) if self.angles else self.sums.new_zeros(0, dtype=torch.float32)
        middle = [_order_statistic(mine, rank) for rank in {(int(count) - 1) // 2, int(count) // 2}]
        return {
            "mean": total / count,
            "rmse": math.sqrt(squares / count),
            "median": sum(middle) / len(middle),
            **{str(bound): value / count for bound, value in zip(WITHIN, within, strict=True)},
        }


def _order_statistic(mine: Tensor, rank: int) -> float:
    """The value of that rank (from 0) among all workers' values; mine: [n] float32, none negative."""
    bits = mine.view(torch.int32)  # of numbers that are not negative: in the same order as the numbers
    upper, lower = bits >> _HALF_BITS, bits & ((1 << _HALF_BITS) - 1)
    high, below = _bin_of(upper, rank)
    low, _ = _bin_of(lower[upper == high], rank - below)
    return torch.tensor((high << _HALF_BITS) | low, dtype=torch.int32).view(torch.float32).item()


def _bin_of(values: Tensor, rank: int) -> tuple[int, int]:
    """The value [0, 2¹⁶) of that rank over all workers, and how many lie below it."""
    counts = over_workers(torch.bincount(values, minlength=1 << _HALF_BITS))
    up_to = counts.cumsum(0)
    found = int(torch.searchsorted(up_to, rank, right=True))
    return found, int(up_to[found] - counts[found])
