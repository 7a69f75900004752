"""Chart ranges without a far-off constant predictor, and the points with room for a name."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

FAR_FLOOR = "constant"


def without_far_floor(scores: pd.Series[float], widths: pd.Series[float]) -> tuple[float, float] | None:
    """Return the range to draw where the constant predictor would squash the other methods; else None.

    The range holds the other methods with their intervals. The constant predictor is too far off where it lies more
    than twice their spread beyond them: beside it they could not be told apart.

    Args:
        scores: The score of each method.
        widths: Half the interval of each method's score.
    """
    other_scores = scores.drop(index=FAR_FLOOR, errors="ignore").dropna()
    if FAR_FLOOR not in scores.index or len(other_scores) < 2 or np.isnan(floor := float(scores[FAR_FLOOR])):
        return None

    low, high = other_scores.min(), other_scores.max()
    if low - 2 * (high - low) <= floor <= high + 2 * (high - low):
        return None

    half_widths = widths.reindex(other_scores.index).fillna(0.0)
    low, high = (other_scores - half_widths).min(), (other_scores + half_widths).max()
    margin = max(0.05 * (high - low), 1e-9)
    return float(low - margin), float(high + margin)


def with_room(x: ArrayLike, y: ArrayLike, first: ArrayLike) -> list[bool]:
    """Return per point whether its name may stand above it, such that no name covers another.

    Args:
        x: Positions as they are drawn: logarithms where the axis is logarithmic.
        y: Positions as they are drawn.
        first: Whether a point chooses before the others.
    """
    positions, has_priority = np.column_stack([_scaled(x), _scaled(y)]), np.asarray(first, dtype=bool)

    named_points: list[int] = []
    for point in sorted(range(len(positions)), key=lambda one: not has_priority[one]):
        distances = np.abs(positions[named_points] - positions[point])
        if not ((distances[:, 0] < 0.3) & (distances[:, 1] < 0.07)).any():
            named_points.append(point)

    return [point in named_points for point in range(len(positions))]


def _scaled(values: ArrayLike) -> np.ndarray:
    numbers = np.asarray(values, dtype=float)
    span = np.ptp(numbers) if len(numbers) else 0.0
    return (numbers - numbers.min()) / span if span > 0 else np.zeros(len(numbers))
