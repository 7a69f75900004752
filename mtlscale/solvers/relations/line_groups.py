"""Groups of numbers on a line: exact one-dimensional k-means."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtlscale.solvers._gramian_common import Array, to_numpy


def group_means(values: Tensor, groups: int) -> Tensor:
    """Return the mean of each number's group [..., T], for the `groups` groups with the least squared distances.

    Groups are intervals of the sorted numbers, found by dynamic programming; common code runs Lloyd's algorithm from
    random centres, which may end in a worse grouping. NaN where a number is not finite.

    Args:
        values: Numbers [..., T].
        groups: The number of groups; with T or more, every number is its own.
    """
    rows = to_numpy(values).reshape(-1, values.shape[-1])
    means = [_means(row, groups) if np.isfinite(row).all() else np.full(len(row), np.nan) for row in rows]
    return torch.from_numpy(np.stack(means)).reshape(values.shape).to(values)


def _means(values: Array, groups: int) -> Array:
    count = len(values)
    if groups >= count:
        return values.copy()

    order = np.argsort(values, kind="stable")
    # Shifted, so that differences of sums of squares keep their digits.
    ordered = values[order] - values.mean()
    sums = np.concatenate([[0.0], ordered.cumsum()])
    squares = np.concatenate([[0.0], (ordered**2).cumsum()])

    def distance(first: int, last: int) -> float:
        """Return the squared distances of numbers `first` to `last - 1` from their mean."""
        total = sums[last] - sums[first]
        return float(squares[last] - squares[first] - total**2 / (last - first))

    best = np.full((groups + 1, count + 1), np.inf)
    begins = np.zeros((groups + 1, count + 1), dtype=np.int64)
    best[0, 0] = 0.0
    for group in range(1, groups + 1):
        for last in range(group, count + 1):
            costs = [best[group - 1, first] + distance(first, last) for first in range(group - 1, last)]
            choice = int(np.argmin(costs))
            best[group, last], begins[group, last] = costs[choice], choice + group - 1

    result, last = np.empty(count), count
    for group in range(groups, 0, -1):
        first = int(begins[group, last])
        members = order[first:last]
        result[members] = values[members].mean()
        last = first
    return result
