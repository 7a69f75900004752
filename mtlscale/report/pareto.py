"""Which methods nobody beats in quality and cost at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FLOOR = "constant"  # has next to no parameters, and would be on every front


def pareto(costs: NDArray[np.float64], gains: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[n] of each point, whether no other has a higher gain at no higher cost,
    or the same at a lower one; False for NaN.
    """
    no_worse = (costs[:, None] <= costs) & (gains[:, None] >= gains)
    better = no_worse & ((costs[:, None] < costs) | (gains[:, None] > gains))
    return np.asarray(~better.any(axis=0) & ~np.isnan(costs) & ~np.isnan(gains))
