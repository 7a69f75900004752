"""Accumulators of what depends on the order of all samples of a split. Definitions: docs/methods.md#metrics."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.metrics.accumulators import Gathered
from mtlscale.metrics.correlation import correlation
from mtlscale.spec import MISSING_CLASS, Task

from torchmetrics.functional.classification import binary_auroc  # isort: skip


class AgainstRest(Gathered):
    """Base: each class or label against the rest, mean over those with both kinds of samples.

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
            kept = target != MISSING_CLASS
            self.scores.append(self.score(prediction[kept], True))
            self.labels.append(functional.one_hot(target[kept], prediction.shape[-1]).to(torch.int8))

    def score(self, prediction: Tensor, classes: bool) -> Tensor:
        """[n, classes] from logits; `classes`: whether they exclude each other."""
        # No sigmoid: of equal logits it makes probabilities that differ in the last bit, by their place in the tensor.
        return prediction.softmax(-1) if classes else prediction

    def figure(self, scores: Tensor, labels: Tensor) -> float:
        areas = []
        for column, truth in zip(scores.T, labels.T, strict=True):
            if (truth == 0).any() and (truth == 1).any():
                kept = truth != MISSING_CLASS
                areas.append(self.area(column[kept], truth[kept].long()))
        return sum(areas) / len(areas) if areas else math.nan


class Auroc(AgainstRest):
    """Exact area under the ROC curve.

    torchmetrics' own class scores a class without positives as 0 and guesses from each batch whether it holds logits;
    this one leaves such classes out and has nothing to guess.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(area_under_roc)


class Aupr(AgainstRest):
    """Average precision: the precision at every threshold, times the recall that it adds. Of two classes that of the
    last."""

    def __init__(self, task: Task) -> None:
        super().__init__(average_precision)
        self.two = task.loss == "cross_entropy" and task.outputs == 2

    def score(self, prediction: Tensor, classes: bool) -> Tensor:
        # Probabilities of confident logits would be ties that are none.
        return prediction.log_softmax(-1) if classes and not self.two else prediction

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if self.two:
            prediction = prediction[:, 1:].double() - prediction[:, :1].double()
            target = torch.where(target == MISSING_CLASS, math.nan, target.double()).unsqueeze(-1)
        super().update(prediction, target)


def area_under_roc(scores: Tensor, truth: Tensor) -> float:
    """scores [n], truth [n] of 0 and 1; samples of one score are half right about each other."""
    values, place = scores.unique(return_inverse=True)
    return binary_auroc(place.double() / len(values), truth, validate_args=False).item()


def average_precision(scores: Tensor, truth: Tensor) -> float:
    """scores [n], truth [n] of 0 and 1; samples of one score come in together."""
    values, place = scores.unique(return_inverse=True)
    right = torch.bincount(place, weights=truth.double(), minlength=len(values)).flip(0)
    found = right.cumsum(0)
    precision = found / torch.bincount(place, minlength=len(values)).flip(0).cumsum(0)
    return ((precision * right).sum() / found[-1]).item()


class Spearman(Gathered):
    """Correlation of ranks, mean over outputs that vary in both."""

    def __init__(self, task: Task) -> None:
        super().__init__()

    def figure(self, scores: Tensor, labels: Tensor) -> float:
        found = []
        for predicted, truth in zip(scores.T, labels.T, strict=True):
            kept = ~truth.isnan()
            found.append(correlation(ranks(predicted[kept]), ranks(truth[kept])))
        there = [value for value in found if not math.isnan(value)]
        return sum(there) / len(there) if there else math.nan


def ranks(values: Tensor) -> Tensor:
    """From 1, ties sharing their mean; float64."""
    _, place, counts = values.unique(return_inverse=True, return_counts=True)
    middle: Tensor = counts.cumsum(0) - (counts.double() - 1.0) / 2.0
    return middle[place]


class Ndcg(Gathered):
    """Σ gain / log2(1 + place) over all samples ordered by score, ties sharing their places, by the same ordered by
    gain. Gains are the labels; NaN where one is negative or all are 0."""

    def __init__(self, task: Task) -> None:
        super().__init__()

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if target.is_floating_point():
            kept = ~target[:, 0].isnan()
            score, gain = prediction[kept, 0].double(), target[kept, 0].double()
        else:
            kept = target != MISSING_CLASS
            score, gain = prediction[kept, 1].double() - prediction[kept, 0].double(), target[kept].double()
        self.scores.append(score)
        self.labels.append(gain)

    def figure(self, scores: Tensor, labels: Tensor) -> float:
        if not len(labels) or labels.min() < 0 or labels.max() <= 0:
            return math.nan
        discount = 1.0 / torch.arange(2, len(labels) + 2, device=labels.device, dtype=torch.float64).log2()
        best = (labels.sort(descending=True).values * discount).sum()
        _, place, counts = (-scores).unique(return_inverse=True, return_counts=True)
        gain = torch.zeros_like(counts, dtype=torch.float64).index_add_(0, place, labels) / counts
        up_to = discount.cumsum(0)[counts.cumsum(0) - 1]
        return float((gain * up_to.diff(prepend=up_to.new_zeros(1))).sum() / best)
