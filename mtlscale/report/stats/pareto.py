"""Pareto fronts: which points are on one, and how much of the space of objectives they cover."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
FLOOR = "constant"  # has next to no parameters, and would be on every front


def dominated(points: Values) -> NDArray[np.bool_]:
    """Return which of the points [N, k], less is better, another point dominates: nowhere worse, somewhere better."""
    no_worse = np.all(points[:, None] <= points, axis=-1)
    better = np.any(points[:, None] < points, axis=-1)
    return np.asarray((no_worse & better).any(0), dtype=np.bool_)


def pareto(costs: Values, gains: Values) -> NDArray[np.bool_]:
    """Return which points [N] no other one dominates with a higher gain or a lower cost; False for NaN."""
    points = np.stack([costs, -gains], axis=-1)
    return ~dominated(points) & ~np.isnan(points).any(axis=-1)


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
