"""Correlations of tasks' labels on the samples that have both."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, TaskSuite


def comparable(suite: TaskSuite, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return task -> labels [N] float64, NaN where there is none.

    Tasks with maps or several numbers to a sample are left out.
    """
    labels = {}
    for task in suite.tasks:
        target = targets[task.name]
        if target.ndim == 2 and target.shape[1] == 1:
            target = target[:, 0]
        if target.ndim == 1:
            values = target.to(torch.float64)
            absent = target == MISSING_CLASS if task.loss == "cross_entropy" else values.isnan()
            labels[task.name] = torch.where(absent, math.nan, values)

    return labels


def correlations(suite: TaskSuite, targets: Mapping[str, Tensor]) -> Tensor:
    """Return the correlations [T, T] float64 of the tasks' labels.

    They are Pearson's r (of two binary tasks: phi), or Cramér's V where a task has more than two classes and the other
    has classes, too. They are NaN where neither fits, no sample has both labels, or a label is always the same.

    Args:
        targets: task -> labels [N, ...] of the same samples.
    """
    labels = comparable(suite, targets)
    classes = {task.name: task.outputs for task in suite.tasks if task.loss == "cross_entropy"}
    binary = {name for name, count in classes.items() if count == 2}
    binary |= {task.name for task in suite.tasks if task.loss == "bce"}

    result = torch.full((len(suite.tasks), len(suite.tasks)), math.nan, dtype=torch.float64)
    for i, first in enumerate(suite.tasks):
        for j, second in enumerate(suite.tasks[: i + 1]):
            if first.name not in labels or second.name not in labels:
                continue

            x, y = labels[first.name], labels[second.name]
            both_labelled = ~(x.isnan() | y.isnan())
            multiclass = [name for name in (first.name, second.name) if name in classes and name not in binary]

            if not multiclass:
                value = pearson(x[both_labelled], y[both_labelled])
            elif all(name in classes or name in binary for name in (first.name, second.name)):
                value = cramers_v(x[both_labelled].long(), y[both_labelled].long())
            else:
                continue
            result[i, j] = result[j, i] = value

    return result


def pearson(x: Tensor, y: Tensor) -> float:
    """Return Pearson's r of x and y [N]; NaN where one does not vary."""
    from scipy.stats import pearsonr

    return float(pearsonr(x.numpy(), y.numpy()).statistic) if _vary(x, y) else math.nan


def cramers_v(x: Tensor, y: Tensor) -> float:
    """Return Cramér's V in [0, 1] of the classes x and y [N]; NaN where one does not vary."""
    from scipy.stats.contingency import association, crosstab

    return float(association(crosstab(x.numpy(), y.numpy()).count, method="cramer")) if _vary(x, y) else math.nan


def _vary(*labels: Tensor) -> bool:
    return all(len(column) > 0 and bool((column != column[0]).any()) for column in labels)
