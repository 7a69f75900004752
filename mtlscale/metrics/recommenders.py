"""Accumulators of metrics of recommenders: order within each user's samples, and calibrated probabilities."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, UNKNOWN_CATEGORY, Task
from mtlscale.metrics.accumulators import GatheredScores, SumsAccumulator, over_workers

BINS = 15  # of equal width, as in Guo et al., ICML 2017


class GroupedAuroc(GatheredScores):
    """Area under the ROC curve of every group's samples, mean over groups with both classes, weighted by their size.

    Groups are the values of an input column, such as the user. Values that training does not have are left out, since
    they all have one code.
    """

    def __init__(self, task: Task) -> None:
        super().__init__()

    def update(self, prediction: Tensor, target: Tensor, groups: Tensor | None = None) -> None:
        """Add the rows of a batch.

        Args:
            prediction: [n, outputs], one output or two classes.
            target: [n] classes or [n, 1] numbers, some of them missing.
            groups: The group of each row [n].
        """
        assert groups is not None
        present, score, truth = scores_of(prediction, target)
        kept = present & (groups != UNKNOWN_CATEGORY)
        self.scores.append(score[kept])
        self.labels.append(torch.stack([truth[kept].double(), groups[kept].double()], 1))

    def value(self, scores: Tensor, labels: Tensor) -> float:
        truth, groups = labels.unbind(1)
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
        return float((areas * size[both]).sum() / size[both].sum()) if bool(both.any()) else math.nan


class CalibrationError(SumsAccumulator):
    """Expected calibration error of the positive class's probability.

    Σ_b n_b/n · |mean probability - share of positives| over bins of equal width.
    """

    def __init__(self, task: Task) -> None:
        super().__init__(3 * BINS)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        present, score, truth = scores_of(prediction, target)
        probability, positive = score[present].sigmoid(), truth[present].double()
        bins = (probability * BINS).long().clamp(max=BINS - 1)
        for position, weights in enumerate((torch.ones_like(probability), probability, positive)):
            self.sums[position * BINS : (position + 1) * BINS].index_add_(0, bins, weights)

    def compute(self) -> float:
        counts, probabilities, positives = over_workers(self.sums).reshape(3, BINS)
        total = counts.sum()
        return float((probabilities - positives).abs().sum() / total) if total > 0 else math.nan


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
