"""Intervals over test items, from the bootstrap over them that records keep."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord

_WIDTHS = 1.96  # standard errors in half an interval of 95 %
COLUMNS = ("average_items", "difference_average", "difference_items")


def intervals(
    records: Sequence[RunRecord], runs: pd.DataFrame, methods: pd.Index[str], reference: str | None
) -> pd.DataFrame:
    """Return one row per method, NaN where its finished runs keep no replicates.

    A replicate draws the same items for all runs, so difficulty that two methods share cancels in their difference.

    Args:
        records: Records of finished runs.
        runs: The same runs as a frame.
        methods: Index of the rows.
        reference: Label of the method that differences are taken to.

    Returns:
        `average_items`: half the 95 % interval over test items of the mean over seeds; `difference_average`: the mean
        difference to the reference on the seeds that both have; `difference_items`: half the interval of that.
    """
    table = pd.DataFrame(np.nan, index=methods, columns=list(COLUMNS))
    replicates: dict[str, dict[int, np.ndarray]] = {}
    for record in records:
        means = [] if record.items is None else record.items.means
        replicates.setdefault(record.method, {})[record.seed] = np.array(means)

    complete = {method: by_seed for method, by_seed in replicates.items() if all(map(len, by_seed.values()))}
    averages = {(method, seed): value for method, seed, value in runs[["method", "seed", "average"]].values.tolist()}
    reference_replicates = complete.get(reference or "", {})

    for method, by_seed in complete.items():
        table.loc[method, "average_items"] = _half_width(list(by_seed.values()))
        shared_seeds = sorted(by_seed.keys() & reference_replicates.keys())
        if shared_seeds and method != reference:
            differences = [averages[method, seed] - averages[reference, seed] for seed in shared_seeds]
            table.loc[method, "difference_average"] = np.mean(differences)
            table.loc[method, "difference_items"] = _half_width(
                [by_seed[seed] - reference_replicates[seed] for seed in shared_seeds]
            )
    return table


def _half_width(replicates: Sequence[np.ndarray]) -> float:
    """Return half the 95 % interval of the mean over seeds."""
    return float(_WIDTHS * np.mean(replicates, axis=0).std(ddof=1))
