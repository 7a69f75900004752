"""Intervals over test items, from the bootstrap over them that records keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

_WIDTHS = 1.96  # standard errors in half an interval of 95 %
REPLICATES = "replicates"  # the column of runs with the replicates of each run's average, an empty array for none


def intervals(runs: pd.DataFrame, methods: pd.Index[str], reference: str | None) -> pd.DataFrame:
    """Return one row per method, NaN where its finished runs keep no replicates.

    Args:
        runs: Finished runs, with `average` and their replicates.
        methods: Index of the rows.
        reference: Label of the method that differences are taken to.

    Returns:
        `average_items`: half the 95 % interval over test items of the mean over seeds; `difference_average`: the mean
        difference to the reference on the seeds that both have; `difference_items`: half the interval of that.
    """
    own = {method: _half_width(list(by_seed.values())) for method, by_seed in _complete(runs).items()}
    table = pd.DataFrame({"average_items": pd.Series(own, dtype=float)}, index=methods)
    return table.join(differences(runs, reference))


def differences(runs: pd.DataFrame, against: str | None) -> pd.DataFrame:
    """Return the columns `difference_average` and `difference_items` of `intervals`, for the methods that have them.

    A replicate draws the same items for all runs, so difficulty that two methods share cancels in their difference.
    """
    complete = _complete(runs)
    averages = dict(zip(zip(runs["method"], runs["seed"], strict=True), runs["average"], strict=True))
    others = complete.get(against or "", {})

    by_method = {}
    for method, by_seed in complete.items():
        shared_seeds = sorted(by_seed.keys() & others.keys())
        if shared_seeds and method != against:
            mean = np.mean([averages[method, seed] - averages[str(against), seed] for seed in shared_seeds])
            by_method[method] = float(mean), _half_width([by_seed[seed] - others[seed] for seed in shared_seeds])
    names = ["difference_average", "difference_items"]
    return pd.DataFrame.from_dict(by_method, orient="index", columns=names, dtype=float)


def item_sides(runs: pd.DataFrame, against: str) -> pd.Series[float]:
    """Return for each method of the runs the sign of its difference to another that test items show.

    It is 0 where the interval over items holds 0, NaN where there is none.
    """
    found = differences(runs, against).reindex(runs["method"].unique())
    mean, width = found["difference_average"], found["difference_items"]
    sides: pd.Series[float] = mean / mean.abs()
    return sides.where(mean.abs() > width, 0.0).where(width.notna())


def _complete(runs: pd.DataFrame) -> dict[str, dict[int, np.ndarray]]:
    """Return method -> seed -> replicates, of the methods whose runs all keep them."""
    replicates: dict[str, dict[int, np.ndarray]] = {}
    for method, seed, means in zip(runs["method"], runs["seed"], runs[REPLICATES], strict=True):
        replicates.setdefault(method, {})[seed] = means
    return {method: by_seed for method, by_seed in replicates.items() if all(map(len, by_seed.values()))}


def _half_width(replicates: Sequence[np.ndarray]) -> float:
    """Return half the 95 % interval of the mean over seeds."""
    return float(_WIDTHS * np.mean(replicates, axis=0).std(ddof=1))
