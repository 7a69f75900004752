"""Metrics that depend on the order of all samples of a split. Definitions: docs/methods.md#metrics."""

from __future__ import annotations

import math

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.contract import Metric
from mtlscale.metrics.shipped.labels import CLASSES
from mtlscale.metrics.shipped.numbers import NUMBERS, correlation, mean_defined


class AgainstRest(Metric):
    """Base of metrics of each class or label against the rest, mean over those with both kinds of samples."""

    higher_is_better = True
    losses = CLASSES
    unit = "%"

    @staticmethod
    def area(scores: Tensor, truth: Tensor) -> float:
        """Return the area of scores [n] and truths [n] of 0 and 1."""
        raise NotImplementedError

    def scores(self, task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return scores [n, classes], and labels [n, classes] int8, `MISSING_CLASS` where absent."""
        prediction = prediction.double()
        if target.is_floating_point():
            # No sigmoid: it gives equal logits probabilities that differ in the last bit, by their place in the tensor.
            return prediction, target.nan_to_num(nan=MISSING_CLASS).to(torch.int8)
        present = target != MISSING_CLASS
        one_hot = torch.nn.functional.one_hot(target[present], prediction.shape[-1])
        return self.normalised(prediction[present]), one_hot.to(torch.int8)

    def normalised(self, logits: Tensor) -> Tensor:
        """Return scores [n, classes] of classes that exclude each other, from logits."""
        return logits.softmax(-1)

    def finish(self, task: Task, pooled: tuple[Tensor, Tensor]) -> float:
        areas = []
        for column, truth in zip(*(part.T for part in pooled), strict=True):
            if (truth == 0).any() and (truth == 1).any():
                present = truth != MISSING_CLASS
                areas.append(self.area(column[present], truth[present].long()))
        return 100.0 * (sum(areas) / len(areas)) if areas else math.nan


class Auroc(AgainstRest):
    """Exact area under the ROC curve, one class against the rest, mean over classes with both kinds of samples."""

    name = "auroc"

    @staticmethod
    def area(scores: Tensor, truth: Tensor) -> float:
        """Return the area under the ROC curve; pairs with equal scores count half."""
        values, level = scores.unique(return_inverse=True)
        # In single precision, in which published results of this package were computed.
        positives = torch.bincount(level, weights=truth.double(), minlength=len(values)).flip(0).cumsum(0).float()
        negatives = torch.bincount(level, minlength=len(values)).flip(0).cumsum(0) - positives
        rates = [torch.nn.functional.pad(counts, (1, 0)) / counts[-1] for counts in (negatives, positives)]
        return torch.trapezoid(rates[1], rates[0]).item()


class Aupr(AgainstRest):
    """Average precision of the positive class; of more classes or labels each against the rest, as `auroc`.

    It is the precision at every threshold, times the recall that it adds. With two classes it is that of the last one.
    """

    name = "aupr"

    @staticmethod
    def area(scores: Tensor, truth: Tensor) -> float:
        """Return the average precision; samples with equal scores share a threshold."""
        values, level = scores.unique(return_inverse=True)
        right = torch.bincount(level, weights=truth.double(), minlength=len(values)).flip(0)
        hits = right.cumsum(0)
        precision = hits / torch.bincount(level, minlength=len(values)).flip(0).cumsum(0)
        return ((precision * right).sum() / hits[-1]).item()

    def scores(self, task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if task.loss == "cross_entropy" and task.outputs == 2:
            prediction = prediction[:, 1:].double() - prediction[:, :1].double()
            target = torch.where(target == MISSING_CLASS, math.nan, target.double()).unsqueeze(-1)
        return super().scores(task, prediction, target)

    def normalised(self, logits: Tensor) -> Tensor:
        return logits.log_softmax(-1)  # probabilities of confident logits would round to the same number, a false tie


class Spearman(Metric):
    """Correlation of ranks, ties sharing theirs, mean over outputs that vary in both."""

    name = "spearman"
    higher_is_better = True
    losses = NUMBERS
    lowest = -1.0
    highest = 1.0

    def scores(self, task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        return prediction.double(), target

    def finish(self, task: Task, pooled: tuple[Tensor, Tensor]) -> float:
        columns = [(x[~y.isnan()], y[~y.isnan()]) for x, y in zip(*(part.T for part in pooled), strict=True)]
        return mean_defined([correlation(ranks(predicted), ranks(truth)) for predicted, truth in columns])


def ranks(values: Tensor) -> Tensor:
    """Return the ranks from 1, float64; ties share their mean rank."""
    _, level, counts = values.unique(return_inverse=True, return_counts=True)
    mean_ranks: Tensor = counts.cumsum(0) - (counts.double() - 1.0) / 2.0
    return mean_ranks[level]


class Ndcg(Metric):
    """Normalised discounted cumulative gain of all samples in one list, ordered by score; gains are the labels.

    Σ gain / log2(1 + rank), ties sharing their ranks, divided by the same sum for samples ordered by gain. NaN if a
    gain is negative or all are 0.
    """

    name = "ndcg"
    higher_is_better = True
    losses = (*CLASSES, *NUMBERS)
    unit = "%"
    one_score = True

    def scores(self, task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if target.is_floating_point():
            present = ~target[:, 0].isnan()
            return prediction[present, 0].double(), target[present, 0].double()
        present = target != MISSING_CLASS
        return prediction[present, 1].double() - prediction[present, 0].double(), target[present].double()

    def finish(self, task: Task, pooled: tuple[Tensor, Tensor]) -> float:
        scores, labels = pooled
        if labels.min() < 0 or labels.max() <= 0:
            return math.nan

        discount = 1.0 / torch.arange(2, len(labels) + 2, device=labels.device, dtype=torch.float64).log2()
        ideal = (labels.sort(descending=True).values * discount).sum()

        _, level, counts = (-scores).unique(return_inverse=True, return_counts=True)
        gain = torch.zeros_like(counts, dtype=torch.float64).index_add_(0, level, labels) / counts
        up_to = discount.cumsum(0)[counts.cumsum(0) - 1]
        return 100.0 * float((gain * up_to.diff(prepend=up_to.new_zeros(1))).sum() / ideal)
