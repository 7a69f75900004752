"""Which differences are real: intervals over seeds, paired tests against a reference, Holm's correction, mean ranks.

Frames of scores have one row per seed and one column per method, NaN where a method has no finished run of that seed.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

LEVEL = 0.05
FEWEST_SEEDS = 3  # shared by a method and the reference; with fewer, no test is made

BETTER, WORSE, SAME, FEW = "better", "worse", "not distinguishable", "too few seeds"


def half_width(deviation: ArrayLike, count: ArrayLike, confidence: float = 0.95) -> NDArray[np.float64]:
    """Half the t-interval of a mean, from sample standard deviations (ddof 1) and counts; NaN below two values."""
    from scipy import stats

    deviation, count = np.asarray(deviation, dtype=float), np.asarray(count, dtype=float)
    enough = np.maximum(count, 2)
    width = stats.t.ppf(0.5 + confidence / 2, enough - 1) * deviation / np.sqrt(enough)
    return np.where(count >= 2, width, np.nan)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values [n]; NaN is no test and stays NaN."""
    p_values = np.asarray(p_values, dtype=float)
    adjusted = np.full_like(p_values, np.nan)
    tested = np.flatnonzero(~np.isnan(p_values))
    order = tested[np.argsort(p_values[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * p_values[order]))
    return adjusted


def paired_tests(scores: pd.DataFrame, reference: str, higher_is_better: bool = True) -> pd.DataFrame:
    """Every method against the reference on the seeds both have.

    Answers with one row per method: `pairs` (seeds shared), `difference` (mean), `p_t` and `p_wilcoxon` (two-sided),
    `p_holm` (of the t-tests, corrected over all methods tested), `p_wilcoxon_holm` and `verdict`, "" for the reference.
    The verdict goes by the t-test: with five seeds or fewer Wilcoxon's smallest p-value is above 0.05.
    """
    differences = scores.drop(columns=reference).sub(scores[reference], axis=0)
    table = pd.DataFrame(index=scores.columns, columns=["difference", "p_t", "p_wilcoxon"], dtype=float)
    table.insert(0, "pairs", scores.notna().mul(scores[reference].notna(), axis=0).sum())
    table.loc[differences.columns, "difference"] = differences.mean()
    # Methods with the same seeds are tested in one call: a thousand rows cost as much as a few.
    available: dict[bytes, list[Any]] = {}
    for method in differences.columns:
        available.setdefault(differences[method].notna().to_numpy().tobytes(), []).append(method)
    for methods in available.values():
        sample = differences[methods].dropna().to_numpy()
        if len(sample) >= FEWEST_SEEDS:
            table.loc[methods, "p_t"], table.loc[methods, "p_wilcoxon"] = _p_values(sample)
    table["p_holm"] = holm(table["p_t"])
    table["p_wilcoxon_holm"] = holm(table["p_wilcoxon"])
    better = (table["difference"] > 0) == higher_is_better
    table["verdict"] = np.select(
        [table.index == reference, table["p_holm"].isna(), table["p_holm"] >= LEVEL, better],
        ["", FEW, SAME, BETTER],
        WORSE,
    )
    return table


def _p_values(differences: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Paired t-test and Wilcoxon's signed-rank test of each column of differences [seeds, methods]."""
    from scipy import stats

    # Without any spread the t-test divides by zero. No difference at all is p = 1; of the same difference every time,
    # as few test items give it, no more is known than its sign: p is that of flipping signs.
    level = np.abs(differences).max(axis=0)
    constant = np.ptp(differences, axis=0) <= 1e-12 * level
    t, wilcoxon = np.where(level == 0, 1.0, 2.0 ** (1 - len(differences))), np.ones(differences.shape[1])
    varying = differences[:, ~constant]
    if varying.size:
        t[~constant] = stats.ttest_1samp(varying, 0.0, axis=0).pvalue
    if (level > 0).any():
        # "exact" takes the distribution without ties: the permutations "auto" falls back to take 0.1 s per method.
        method: Literal["exact", "approx"] = "exact" if len(differences) <= 50 else "approx"
        wilcoxon[level > 0] = stats.wilcoxon(differences[:, level > 0], axis=0, method=method).pvalue
    return t, wilcoxon


def mean_ranks(values: pd.DataFrame, higher_is_better: ArrayLike) -> pd.Series[float]:
    """Mean over tasks (columns) of each method's rank (1 is best, ties share their mean), from [methods, tasks] means.

    Methods with a missing value are not ranked.
    """
    complete = values.dropna()
    signs = np.where(np.asarray(higher_is_better, dtype=bool), -1.0, 1.0)
    return (complete * signs).rank(axis=0).mean(axis=1).reindex(values.index)
