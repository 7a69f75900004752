"""Metrics of recommenders: order within each user's samples, and calibrated probabilities."""

from __future__ import annotations

import math

from mtlscale.config import MISSING_CLASS, UNKNOWN_CATEGORY, Task
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.accumulators import Accumulator, Sums
from mtlscale.metrics.contract import Metric
from mtlscale.metrics.shipped.labels import CLASSES

BINS = 15  # of equal width, as in Guo et al., ICML 2017


class GroupedAuroc(Metric):
    """Area under the ROC curve of each group's samples, such as a user's, weighted by their size (GAUC).

    The mean is over groups with both classes. Groups are the values of an input column. Values that training does not
    have are left out, since they all have one code.
    """

    name = "gauroc"
    higher_is_better = True
    losses = CLASSES
    unit = "%"
    one_score = True
    grouped = True

    def scores(
        self, task: Task, prediction: Tensor, target: Tensor, groups: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        assert groups is not None
        present, score, truth = scores_of(prediction, target)
        kept = present & (groups != UNKNOWN_CATEGORY)
        return score[kept], torch.stack([truth[kept].double(), groups[kept].double()], 1)

    def finish(self, task: Task, pooled: tuple[Tensor, Tensor]) -> float:
        scores, (truth, groups) = pooled[0], pooled[1].unbind(1)
        if not len(scores):
            return math.nan

        order = scores.argsort(stable=True)
        order = order[groups[order].argsort(stable=True)]
        score, truth, group = scores[order], truth[order], groups[order].unique_consecutive(return_inverse=True)[1]

        size = torch.bincount(group).double()
        positives = torch.bincount(group, weights=truth, minlength=len(size))
        first = size.cumsum(0) - size
        # Ties within a group share their mean rank.
        _, level, counts = torch.stack([group.double(), score]).unique_consecutive(
            dim=1, return_inverse=True, return_counts=True
        )
        last_rank = counts.cumsum(0).double()
        rank = (last_rank - (counts - 1) / 2)[level] - first[group]

        rank_sums = torch.bincount(group, weights=rank * truth, minlength=len(size))
        both = (positives > 0) & (positives < size)
        pairs = positives * (size - positives)
        areas = (rank_sums - positives * (positives + 1) / 2)[both] / pairs[both]
        return 100.0 * float((areas * size[both]).sum() / size[both].sum()) if bool(both.any()) else math.nan


class CalibrationError(Metric):
    """Expected calibration error: mean over 15 bins of |mean probability − share of positives|, weighted by size."""

    name = "ece"
    higher_is_better = False
    losses = CLASSES
    unit = "%"
    one_score = True

    def accumulator(self, task: Task) -> Accumulator:
        return _Bins(scores_of, self.merge)

    def finish(self, task: Task, sums: Tensor) -> float:
        counts, probabilities, positives = sums
        return 100.0 * float((probabilities - positives).abs().sum() / counts.sum())


class _Bins(Sums):
    """Sums of each bin, added up sample by sample, so that no digit depends on the batch size."""

    def update(self, *rows: Tensor) -> None:
        present, score, truth = self.sums(*rows)
        probability, positive = score[present].sigmoid(), truth[present].double()
        bins = (probability * BINS).long().clamp(max=BINS - 1)
        self.total = probability.new_zeros(3, BINS) if self.total is None else self.total
        self.total.index_add_(1, bins, torch.stack([torch.ones_like(probability), probability, positive]))


def scores_of(prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mask of rows with a label [n], their logits of the positive class, float64, and whether they are it.

    Args:
        prediction: [n, outputs], one output or two classes.
        target: [n] classes or [n, 1] numbers, some of them missing.
    """
    if target.is_floating_point():
        return ~target[:, 0].isnan(), prediction[:, 0].double(), target[:, 0] > 0.5
    score = prediction[:, 1].double() - prediction[:, 0].double()
    return target != MISSING_CLASS, score, target == 1
