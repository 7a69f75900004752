"""Pareto fronts: which points are on one, and how much of the space of objectives they cover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
FLOOR = "constant"  # has next to no parameters, and would be on every front


def pareto(costs: NDArray[np.float64], gains: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which points [n] no other point beats; False for NaN.

    A point is beaten by another with a higher gain at no higher cost, or with the same gain at a lower cost.
    """
    no_worse = (costs[:, None] <= costs) & (gains[:, None] >= gains)
    better = no_worse & ((costs[:, None] < costs) | (gains[:, None] > gains))
    return np.asarray(~better.any(axis=0) & ~np.isnan(costs) & ~np.isnan(gains))


def dominated(points: Values) -> NDArray[np.bool_]:
    """Return [N] which of the points [N, k], less is better, are dominated.

    Another point is nowhere worse and somewhere better.
    """
    no_worse = np.all(points[:, None] <= points, axis=-1)
    better = np.any(points[:, None] < points, axis=-1)
    return np.asarray((no_worse & better).any(0), dtype=np.bool_)


def hypervolume(points: Values, reference: Values) -> float:
    """Return the exact volume between points [N, k], less is better, and the reference [k].

    Points beyond the reference count nothing. The computation goes by slices along the last objective and is meant for
    up to some hundred points.
    """
    points = points[(points < reference).all(1)]

    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(reference[0] - points.min())

    points = points[points[:, -1].argsort(kind="stable")]
    edges = [*points[1:, -1], reference[-1]]
    total = 0.0
    for count, (low, high) in enumerate(zip(points[:, -1], edges, strict=True), 1):
        if high > low:
            slice_points = points[:count, :-1]
            total += float(high - low) * hypervolume(slice_points[~dominated(slice_points)], reference[:-1])

    return total
