"""What a table owes to its test items: intervals from the bootstrap over them that records keep."""

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
    """One row per method, NaN where its finished runs do not say: half the interval over test items of the mean over
    seeds; the mean difference to the reference on the seeds both have, and half the interval of that.

    records, runs: of finished runs, the same. A replicate draws the same items for all runs, so what is hard for both
    falls out of a difference.
    """
    found = pd.DataFrame(np.nan, index=methods, columns=list(COLUMNS))
    replicates: dict[str, dict[int, np.ndarray]] = {}
    for record in records:
        means = [] if record.items is None else record.items.means
        replicates.setdefault(record.method, {})[record.seed] = np.array(means)
    whole = {method: of for method, of in replicates.items() if all(map(len, of.values()))}
    averages = {(method, seed): value for method, seed, value in runs[["method", "seed", "average"]].values.tolist()}
    theirs = whole.get(reference or "", {})
    for method, of in whole.items():
        found.loc[method, "average_items"] = _half_width(list(of.values()))
        shared = sorted(of.keys() & theirs.keys())
        if shared and method != reference:
            differences = [averages[method, seed] - averages[reference, seed] for seed in shared]
            found.loc[method, "difference_average"] = np.mean(differences)
            found.loc[method, "difference_items"] = _half_width([of[seed] - theirs[seed] for seed in shared])
    return found


def _half_width(replicates: Sequence[np.ndarray]) -> float:
    """Of the mean over seeds."""
    return float(_WIDTHS * np.mean(replicates, axis=0).std(ddof=1))
