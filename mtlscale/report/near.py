"""What a picture shows where one point is far off, and which of its points have room for a name."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

FAR_FLOOR = "constant"


def without_far_floor(scores: pd.Series[float], widths: pd.Series[float]) -> tuple[float, float] | None:
    """The stretch of the other methods with half intervals of these widths, where the constant predictor is so far off
    that they could not be told apart beside it; else None."""
    others = scores.drop(index=FAR_FLOOR, errors="ignore").dropna()
    if FAR_FLOOR not in scores.index or len(others) < 2 or np.isnan(floor := float(scores[FAR_FLOOR])):
        return None
    low, high = others.min(), others.max()
    if low - 2 * (high - low) <= floor <= high + 2 * (high - low):
        return None
    wide = widths.reindex(others.index).fillna(0.0)
    low, high = (others - wide).min(), (others + wide).max()
    margin = max(0.05 * (high - low), 1e-9)
    return float(low - margin), float(high + margin)


def with_room(x: ArrayLike, y: ArrayLike, first: ArrayLike) -> list[bool]:
    """Which points may have their names above them so that none covers another; those in `first` choose first. x: as it
    is drawn, a logarithm where the axis has it."""
    places, early = np.column_stack([_scaled(x), _scaled(y)]), np.asarray(first, dtype=bool)
    named: list[int] = []
    for place in sorted(range(len(places)), key=lambda one: not early[one]):
        apart = np.abs(places[named] - places[place])
        if not ((apart[:, 0] < 0.3) & (apart[:, 1] < 0.07)).any():
            named.append(place)
    return [place in named for place in range(len(places))]


def _scaled(values: ArrayLike) -> np.ndarray:
    known = np.asarray(values, dtype=float)
    span = np.ptp(known) if len(known) else 0.0
    return (known - known.min()) / span if span > 0 else np.zeros(len(known))
