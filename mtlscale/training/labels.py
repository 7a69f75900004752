"""How labels of tasks go together on the samples that have both."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mtlscale.spec import MISSING_CLASS, TaskSuite


def comparable(suite: TaskSuite, targets: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Task -> [N] float64, NaN where there is no label; tasks with maps or several numbers to a sample are left out."""
    found = {}
    for task in suite.tasks:
        target = targets[task.name]
        if target.ndim == 2 and target.shape[1] == 1:
            target = target[:, 0]
        if target.ndim == 1:
            known = target.to(torch.float64)
            absent = target == MISSING_CLASS if task.loss == "cross_entropy" else known.isnan()
            found[task.name] = torch.where(absent, math.nan, known)
    return found


def correlations(suite: TaskSuite, targets: Mapping[str, Tensor]) -> Tensor:
    """targets: task -> [N, ...] of the same samples -> [T, T] float64: Pearson's r (of two binary tasks: phi), or
    Cramér's V where a task has more than two classes and the other has classes, too. NaN where neither fits, no sample
    has both labels, or a label is always the same."""
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
            both = ~(x.isnan() | y.isnan())
            many = [name for name in (first.name, second.name) if name in classes and name not in binary]
            if not many:
                value = pearson(x[both], y[both])
            elif all(name in classes or name in binary for name in (first.name, second.name)):
                value = cramers_v(x[both].long(), y[both].long())
            else:
                continue
            result[i, j] = result[j, i] = value
    return result


def pearson(x: Tensor, y: Tensor) -> float:
    """x, y [N] -> r; NaN where one does not vary."""
    from scipy.stats import pearsonr

    return float(pearsonr(x.numpy(), y.numpy()).statistic) if _vary(x, y) else math.nan


def cramers_v(x: Tensor, y: Tensor) -> float:
    """Classes [N] -> V in [0, 1]; NaN where one does not vary."""
    from scipy.stats.contingency import association, crosstab

    return float(association(crosstab(x.numpy(), y.numpy()).count, method="cramer")) if _vary(x, y) else math.nan


def _vary(*labels: Tensor) -> bool:
    return all(len(one) > 0 and bool((one != one[0]).any()) for one in labels)
