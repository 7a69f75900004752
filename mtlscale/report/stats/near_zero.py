"""Metrics whose baseline is near 0: relative gains over it are huge, and Δ shows nothing but them.

Definition: docs/methods.md#deltas.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from mtlscale.metrics import known_metric

NEAR_ZERO_FRACTION = 0.05  # of the metric's scale: a row that has that scale differs from the baseline by 1,900 %
SMALL = 0.02  # of an untrained model's value of a metric of labels, about 1 or 100 %, where no constant row shows it

Entry = tuple[str, str]  # task, metric


def near_zero(
    means: pd.DataFrame, baseline: str, constant: str | None, entered: Sequence[Entry], directions: Mapping[str, bool]
) -> tuple[Entry, ...]:
    """Return the metrics of Δ whose baseline is near 0.

    Lower is better: below 5 % of the constant prediction's value, or, without such a row, below 0.02 (2 %) where
    the metric is one of labels; the scale of other errors is not known. Higher is better: below 5 % of the best row.

    Args:
        means: Means over seeds, [methods, (task, metric)].
        baseline: The row that Δ is taken to.
        constant: The row of the constant prediction, if there is one.
        entered: The (task, metric) that enter Δ.
        directions: Metric -> whether higher is better.
    """
    near_entries = []
    for entry in entered:
        value, metric = abs(float(means[entry][baseline])), entry[1]
        scale = math.nan
        if directions[metric]:
            scale = float(means[entry].abs().max())
        elif constant is not None:
            scale = abs(float(means[entry][constant]))

        bound = SMALL * _size(metric) if math.isnan(scale) else NEAR_ZERO_FRACTION * scale
        if 0 < value < bound:  # 0 itself has no Δ: another note says so
            near_entries.append(entry)

    return tuple(near_entries)


def order_without(near: Collection[Entry], main: Mapping[str, str], scores: pd.DataFrame) -> str:
    """Return the column to sort and test by: Δ where none of its metrics is near 0, else the main metrics."""
    candidates = ["delta_i", "average"]
    if near:
        candidates = ["average", "delta_i"] if set(main.items()) & set(near) else ["delta_main", "average"]
    return next((name for name in candidates if scores[name].notna().any()), "mean_rank")


def _size(metric: str) -> float:
    """Return about what an untrained model scores in a metric of labels; NaN where that is not known."""
    info = known_metric(metric)
    if info is None:
        return math.nan
    if not {"cross_entropy", "soft_cross_entropy", "bce"} & set(info.losses) or info.unit not in ("", "%", "nats"):
        return math.nan
    return 100.0 if info.unit == "%" else 1.0
