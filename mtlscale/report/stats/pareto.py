"""Pareto front of quality and cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLOOR = "constant"  # has next to no parameters, and would be on every front


Values = NDArray[np.float64]


def dominated(points: Values) -> NDArray[np.bool_]:
    """Return which of the points [N, k], less is better, another point dominates: nowhere worse, somewhere better."""
    no_worse = np.all(points[:, None] <= points, axis=-1)
    better = np.any(points[:, None] < points, axis=-1)
    return np.asarray((no_worse & better).any(0), dtype=np.bool_)


def pareto(costs: Values, gains: Values) -> NDArray[np.bool_]:
    """Return which points [N] no other one dominates with a higher gain or a lower cost; False for NaN."""
    points = np.stack([costs, -gains], axis=-1)
    return ~dominated(points) & ~np.isnan(points).any(axis=-1)
