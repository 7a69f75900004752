"""Pareto front of quality and cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLOOR = "constant"  # has next to no parameters, and would be on every front


def pareto(costs: NDArray[np.float64], gains: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which points [n] no other point beats; False for NaN.

    A point is beaten by another with a higher gain at no higher cost, or with the same gain at a lower cost.
    """
    no_worse = (costs[:, None] <= costs) & (gains[:, None] >= gains)
    better = no_worse & ((costs[:, None] < costs) | (gains[:, None] > gains))
    return np.asarray(~better.any(axis=0) & ~np.isnan(costs) & ~np.isnan(gains))
