"""Ties that rounding would decide: numbers that are equal within it become the same number."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.records import NEAR_ZERO, ROUNDING


def tied(values: pd.Series[float]) -> pd.Series[float]:
    """Return the values, those that are equal within rounding as one number; NaN stays.

    So ranks share their mean, a stable sort keeps the order of the file, and `idxmax` takes the first.
    """
    numbers = values.to_numpy(float, copy=True)
    order = np.argsort(numbers, kind="stable")  # NaN last
    ordered = numbers[order]

    with np.errstate(invalid="ignore"):
        gaps, sizes = np.diff(ordered), np.maximum(np.abs(ordered[1:]), np.abs(ordered[:-1]))
        begins = np.r_[True, ~(gaps <= np.maximum(ROUNDING * sizes, NEAR_ZERO))]
    numbers[order] = ordered[np.maximum.accumulate(np.where(begins, np.arange(len(ordered)), 0))]
    return pd.Series(numbers, index=values.index, name=values.name)
