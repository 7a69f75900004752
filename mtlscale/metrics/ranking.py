"""Accumulators of metrics that depend on the order of all samples of a split. Definitions: docs/methods.md#metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics.accumulators import GatheredScores
from mtlscale.metrics.correlation import correlation


class AgainstRest(GatheredScores):
    """Base of metrics of each class or label against the rest, mean over those with both kinds of samples.

    labels: [n, classes] int8, `MISSING_CLASS` where absent.
    """

    def __init__(self, area: Callable[[Tensor, Tensor], float]) -> None:
        super().__init__()
        self.area = area

    def update(self, prediction: Tensor, target: Tensor) -> None:
        prediction = prediction.double()
        if target.is_floating_point():
            self.scores.append(self.score(prediction, False))
            self.labels.append(target.nan_to_num(nan=MISSING_CLASS).to(torch.int8))
        else:
            present = target != MISSING_CLASS
            self.scores.append(self.score(prediction[present], True))
            self.labels.append(functional.one_hot(target[present], prediction.shape[-1]).to(torch.int8))

    def score(self, prediction: Tensor, classes: bool) -> Tensor:
        """Return scores [n, classes] from logits.

        Args:
            prediction: [n, classes] logits.
            classes: Whether the classes exclude each other.
        """
        # No sigmoid: it gives equal logits probabilities that differ in the last bit, by their position in the tensor.
        return prediction.softmax(-1) if classes else prediction

    def value(self, scores: Tensor, labels: Tensor) -> float:
        areas = []
        for column, truth in zip(scores.T, labels.T, strict=True):
            if (truth == 0).any() and (truth == 1).any():
                present = truth != MISSING_CLASS
                areas.append(self.area(column[present], truth[present].long()))
        return sum(areas) / len(areas) if areas else math.nan


class Auroc(AgainstRest):
    """Exact area under the ROC curve; classes without positives are left out."""

    def __init__(self, task: Task) -> None:
        super().__init__(area_under_roc)


class Aupr(AgainstRest):
    """Average precision: the precision at every threshold, times the recall that it adds.

    With two classes it is that of the last one.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(average_precision)
        self.two = task.loss == "cross_entropy" and task.outputs == 2

    def score(self, prediction: Tensor, classes: bool) -> Tensor:
        # Probabilities of confident logits would round to the same number, a false tie.
        return prediction.log_softmax(-1) if classes and not self.two else prediction

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if self.two:
            prediction = prediction[:, 1:].double() - prediction[:, :1].double()
            target = torch.where(target == MISSING_CLASS, math.nan, target.double()).unsqueeze(-1)
        super().update(prediction, target)


def area_under_roc(scores: Tensor, truth: Tensor) -> float:
    """Return the area under the ROC curve; pairs with equal scores count half.

    Args:
        scores: [n].
        truth: [n] of 0 and 1.
    """
    values, level = scores.unique(return_inverse=True)
    # In single precision, in which published results of this package were computed.
    positives = torch.bincount(level, weights=truth.double(), minlength=len(values)).flip(0).cumsum(0).float()
    negatives = torch.bincount(level, minlength=len(values)).flip(0).cumsum(0) - positives
    rates = [functional.pad(counts, (1, 0)) / counts[-1] for counts in (negatives, positives)]
    return torch.trapezoid(rates[1], rates[0]).item()


def average_precision(scores: Tensor, truth: Tensor) -> float:
    """Return the average precision; samples with equal scores share a threshold.

    Args:
        scores: [n].
        truth: [n] of 0 and 1.
    """
    values, level = scores.unique(return_inverse=True)
    right = torch.bincount(level, weights=truth.double(), minlength=len(values)).flip(0)
    hits = right.cumsum(0)
    precision = hits / torch.bincount(level, minlength=len(values)).flip(0).cumsum(0)
    return ((precision * right).sum() / hits[-1]).item()


class Spearman(GatheredScores):
    """Correlation of ranks, mean over outputs that vary in both."""

    def __init__(self, task: Task) -> None:
        super().__init__()

    def value(self, scores: Tensor, labels: Tensor) -> float:
        coefficients = []
        for predicted, truth in zip(scores.T, labels.T, strict=True):
            present = ~truth.isnan()
            coefficients.append(correlation(ranks(predicted[present]), ranks(truth[present])))
        defined = [value for value in coefficients if not math.isnan(value)]
        return sum(defined) / len(defined) if defined else math.nan


def ranks(values: Tensor) -> Tensor:
    """Return the ranks from 1, float64; ties share their mean rank."""
    _, level, counts = values.unique(return_inverse=True, return_counts=True)
    mean_ranks: Tensor = counts.cumsum(0) - (counts.double() - 1.0) / 2.0
    return mean_ranks[level]


class Ndcg(GatheredScores):
    """Normalised discounted cumulative gain over all samples, ordered by score.

    Σ gain / log2(1 + rank), ties sharing their ranks, divided by the same sum for samples ordered by gain. Gains are
    the labels; NaN if one is negative or all are 0.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if target.is_floating_point():
            present = ~target[:, 0].isnan()
            score, gain = prediction[present, 0].double(), target[present, 0].double()
        else:
            present = target != MISSING_CLASS
            score, gain = prediction[present, 1].double() - prediction[present, 0].double(), target[present].double()
        self.scores.append(score)
        self.labels.append(gain)

    def value(self, scores: Tensor, labels: Tensor) -> float:
        if not len(labels) or labels.min() < 0 or labels.max() <= 0:
            return math.nan

        discount = 1.0 / torch.arange(2, len(labels) + 2, device=labels.device, dtype=torch.float64).log2()
        ideal = (labels.sort(descending=True).values * discount).sum()

        _, level, counts = (-scores).unique(return_inverse=True, return_counts=True)
        gain = torch.zeros_like(counts, dtype=torch.float64).index_add_(0, level, labels) / counts
        up_to = discount.cumsum(0)[counts.cumsum(0) - 1]
        return float((gain * up_to.diff(prepend=up_to.new_zeros(1))).sum() / ideal)
