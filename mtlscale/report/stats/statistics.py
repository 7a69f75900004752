"""Tests of differences: intervals over seeds, paired tests against a reference, Holm's correction, mean ranks.

Frames of scores have one row per seed and one column per method, NaN where a method has no finished run of that seed.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from mtlscale.report.stats.ties import tied

# Of the tests. A t-test of shares of a few dozen test items is wrong up to a tenth too often; at this level no table of
# methods that are all alike has a false verdict more often than in 5 of 100 (docs/methods.md).
LEVEL = 0.045
FEWEST_SEEDS = 3  # shared by a method and the reference; with fewer, no test is made

BETTER, WORSE, SAME, OPEN = "better", "worse", "not distinguishable", "undecided"


def half_width(deviation: ArrayLike, count: ArrayLike, confidence: float = 0.95) -> NDArray[np.float64]:
    """Return half the t-interval of a mean; NaN below three values, as two make one of 12.7 standard errors.

    Args:
        deviation: Sample standard deviations (ddof 1).
        count: The numbers of values.
        confidence: The share of intervals that hold the true mean.
    """
    from scipy import stats

    deviation, count = np.asarray(deviation, dtype=float), np.asarray(count, dtype=float)
    enough = np.maximum(count, 2)
    width = stats.t.ppf(0.5 + confidence / 2, enough - 1) * deviation / np.sqrt(enough)
    return np.where(count >= FEWEST_SEEDS, width, np.nan)


def holm(p_values: ArrayLike, missing: int = 0) -> NDArray[np.float64]:
    """Return Holm's step-down adjusted p-values over the last axis [..., n]; NaN is no test and stays NaN.

    Args:
        p_values: The p-values of the tests.
        missing: Tests that are planned and cannot be made yet, which are corrected for as if they were made.
    """
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values, axis=-1, kind="stable")  # NaN last
    factors = missing + (~np.isnan(p_values)).sum(axis=-1, keepdims=True) - np.arange(p_values.shape[-1])
    stepped = np.maximum.accumulate(factors * np.take_along_axis(p_values, order, axis=-1), axis=-1)

    adjusted = np.empty_like(p_values)
    np.put_along_axis(adjusted, order, np.minimum(1.0, stepped), axis=-1)
    return adjusted


def t_test(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the two-sided p-values [...] of paired t-tests; NaN below FEWEST_SEEDS.

    Without any spread the t-test divides by zero. No difference at all is p = 1; of the same difference every time, as
    few test items give it, no more is known than its sign: p is that of flipping signs.

    Args:
        differences: The paired differences [seeds, ...], of which some may be NaN.
    """
    from scipy import stats

    present = ~np.isnan(differences)
    count = present.sum(axis=0)
    enough = np.maximum(count, 2)

    mean = np.where(present, differences, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(present, differences - mean, 0.0) ** 2
    level = np.where(present, np.abs(differences), 0.0).max(axis=0, initial=0.0)
    spread = np.where(present, np.abs(differences - mean), 0.0).max(axis=0, initial=0.0)

    constant = spread <= 1e-12 * level

    error = np.sqrt(squares.sum(axis=0) / (enough - 1) / enough)
    p_values = 2.0 * stats.t.sf(np.abs(mean) / np.where(constant, 1.0, error), enough - 1)
    p_values = np.where(constant, np.where(level == 0, 1.0, 2.0 ** (1.0 - count)), p_values)

    return np.where(count >= FEWEST_SEEDS, p_values, np.nan)


def judged(gain: ArrayLike, p_holm: ArrayLike, items: ArrayLike = math.nan) -> NDArray[np.str_]:
    """Return the verdicts on mean gains over a reference: better and worse need seeds and test items that agree.

    Args:
        gain: Mean differences, positive where a method is better.
        p_holm: Their corrected p-values over seeds; NaN where there is no test.
        items: What test items alone show: 1 better, -1 worse, 0 neither, NaN where that is not recorded.
    """
    side, p_holm, items = np.sign(gain), np.asarray(p_holm, dtype=float), np.asarray(items, dtype=float)
    shown = (p_holm < LEVEL) & (side != 0) & (np.isnan(items) | (items == side))
    some_items = ~np.isnan(items) & (items != 0)
    return np.select([shown & (side > 0), shown, np.isnan(p_holm) | some_items], [BETTER, WORSE, OPEN], SAME)


def smallest_difference(deviation: float, pairs: int, tests: int) -> float:
    """Return the mean difference below which a t-test finds none; NaN where no test is made.

    Without spread the p-value is that of flipping signs: any difference is found (0), or none (infinity).

    Args:
        deviation: The sample standard deviation of paired differences.
        pairs: The number of paired seeds.
        tests: The number of tests that the p-value is multiplied by.
    """
    from scipy import stats

    if pairs < FEWEST_SEEDS or tests < 1 or math.isnan(deviation):
        return math.nan
    if deviation == 0:
        return 0.0 if tests * 2.0 ** (1 - pairs) < LEVEL else math.inf
    return float(stats.t.isf(LEVEL / tests / 2, pairs - 1)) * deviation / math.sqrt(pairs)


def paired_tests(
    scores: pd.DataFrame,
    reference: str,
    higher_is_better: bool = True,
    missing: int = 0,
    *,
    tested: pd.DataFrame | None = None,
    items: pd.Series[float] | None = None,
) -> pd.DataFrame:
    """Test every method against the reference on the seeds both have.

    Args:
        scores: The scores that are shown.
        reference: The method that the others are compared with.
        higher_is_better: Of these scores.
        missing: As of `holm`.
        tested: The scores that tests are made on where these are others, such as logarithms; higher is better.
        items: What test items show of each method, as of `judged`.

    Returns:
        One row per method: `pairs` (seeds shared), `difference` (mean of the scores shown), `p_t` and `p_wilcoxon`
        (two-sided), `p_holm` (of the t-tests, corrected over all methods tested), `p_wilcoxon_holm` and `verdict`, ""
        for the reference. The verdict goes by the t-test: with five seeds or fewer no test of signs or ranks can fall
        below 0.05.
    """
    sign = 1.0 if higher_is_better else -1.0
    differences = scores.drop(columns=reference).sub(scores[reference], axis=0)
    gains = sign * differences
    if tested is not None:
        gains = tested.drop(columns=reference).sub(tested[reference], axis=0)

    table = pd.DataFrame(index=scores.columns, columns=["difference", "p_t", "p_wilcoxon"], dtype=float)
    table.insert(0, "pairs", scores.notna().mul(scores[reference].notna(), axis=0).sum())
    table.loc[differences.columns, "difference"] = differences.mean()
    table.loc[gains.columns, "p_t"] = t_test(gains.to_numpy())

    # Methods with the same seeds are tested in one call: a thousand rows cost as much as a few.
    available: dict[bytes, list[Any]] = {}
    for method in gains.columns:
        available.setdefault(gains[method].notna().to_numpy().tobytes(), []).append(method)
    for methods in available.values():
        sample = gains[methods].dropna().to_numpy()
        if len(sample) >= FEWEST_SEEDS:
            table.loc[methods, "p_wilcoxon"] = _wilcoxon(sample)

    table["p_holm"] = holm(table["p_t"], missing)
    table["p_wilcoxon_holm"] = holm(table["p_wilcoxon"], missing)

    agreed = agreeing(sign * table["difference"], gains.mean().reindex(table.index))
    table["verdict"] = judged(agreed, table["p_holm"], math.nan if items is None else items.reindex(table.index))
    table.loc[reference, "verdict"] = ""

    return table


def agreeing(shown: ArrayLike, tested: ArrayLike) -> NDArray[np.float64]:
    """Return the gains that are shown, 0 where those that are tested have the other sign."""
    return np.where(np.sign(shown) == np.sign(tested), shown, 0.0)


def _wilcoxon(differences: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return two-sided p-values [methods] of Wilcoxon's signed-rank test, from differences [seeds, methods]."""
    from scipy import stats

    p_values, differing = np.ones(differences.shape[1]), (differences != 0).any(axis=0)
    if differing.any():
        # "exact" takes the distribution without ties: the permutations "auto" falls back to take 0.1 s per method.
        method: Literal["exact", "approx"] = "exact" if len(differences) <= 50 else "approx"
        p_values[differing] = stats.wilcoxon(differences[:, differing], axis=0, method=method).pvalue
    return p_values


def mean_ranks(values: pd.DataFrame, higher_is_better: ArrayLike) -> pd.Series[float]:
    """Return the mean over tasks of each method's rank (1 is best, ties share their mean).

    Methods with a missing value are not ranked.

    Args:
        values: Means over seeds, [methods, tasks].
        higher_is_better: Of each task.
    """
    complete = values.dropna()
    signs = np.where(np.asarray(higher_is_better, dtype=bool), -1.0, 1.0)
    return (complete * signs).apply(tied).rank(axis=0).mean(axis=1).reindex(values.index)
