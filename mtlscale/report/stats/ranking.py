"""Mean ranks over data sets and their tests: Friedman's test, Nemenyi's critical difference, groups of methods.

Demšar, Statistical comparisons of classifiers over multiple data sets, JMLR 7 (2006). Ranks are [data sets, methods], 1
is best, and complete.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.report.stats.ties import tied

# With fewer, the F distribution errs in up to 25 of 100 cases (docs/methods.md); with two methods ranks are a test of
# signs, which says no more than the share of wins.
FEWEST_DATASETS = 5
FEWEST_METHODS = 3
LEVEL = 0.05


@dataclass(frozen=True)
class Friedman:
    """The χ² of Friedman and the F of Iman and Davenport with their p-values; all NaN with too little data."""

    datasets: int
    methods: int
    chi2: float
    p_chi2: float
    f: float
    p: float  # of F: the verdict goes by it

    @property
    def rejects(self) -> bool:
        """True if some methods differ."""
        return self.p < LEVEL


def friedman(ranks: pd.DataFrame) -> Friedman:
    """Test if the mean ranks differ more than chance makes them, ties corrected for."""
    from scipy import stats

    count, methods = ranks.shape
    if count < FEWEST_DATASETS or methods < FEWEST_METHODS:
        return Friedman(count, methods, math.nan, math.nan, math.nan, math.nan)

    expected = (methods + 1) / 2
    spread = float(((ranks - expected) ** 2).to_numpy().sum())
    between = float(((ranks.sum() - count * expected) ** 2).sum())
    chi2 = 0.0 if spread == 0 else (methods - 1) * between / spread
    p_chi2 = float(stats.chi2.sf(chi2, methods - 1))

    remainder = count * (methods - 1) - chi2
    if remainder <= 1e-9 * count:  # the same ranks everywhere: F is infinite, and its p-value no probability
        return Friedman(count, methods, chi2, p_chi2, math.inf, p_chi2)

    f = (count - 1) * chi2 / remainder
    p = float(stats.f.sf(f, methods - 1, (methods - 1) * (count - 1)))
    return Friedman(count, methods, chi2, p_chi2, f, p)


def critical_difference(methods: int, datasets: int, level: float = LEVEL) -> float:
    """Return the difference from which Nemenyi's test tells two mean ranks apart; NaN with too little data."""
    from scipy import stats

    if datasets < FEWEST_DATASETS or methods < FEWEST_METHODS:
        return math.nan
    return float(
        stats.studentized_range.isf(level, methods, np.inf) * math.sqrt(methods * (methods + 1) / (12 * datasets))
    )


def cliques(mean_ranks: pd.Series[float], difference: float) -> list[tuple[str, ...]]:
    """Return the largest groups of two methods or more whose mean ranks all lie less than that apart; best first."""
    ordered = mean_ranks.sort_values(kind="stable")
    values, methods = ordered.to_numpy(), [str(method) for method in ordered.index]
    groups, last_end = [], 0
    for start, value in enumerate(values):
        end = int(np.searchsorted(values, value + difference, side="left"))
        if end > last_end and end - start > 1:  # else it is part of the last group
            groups.append(tuple(methods[start:end]))
        last_end = max(last_end, end)
    return groups


def win_shares(scores: Mapping[str, pd.Series[float]], methods: pd.Index) -> pd.Series[float]:
    """Return the share of its comparisons that each method won; a tie is half of one.

    Each method is compared with every other one on each data set that both finished. Higher scores are better.
    """
    won, played = pd.Series(0.0, index=methods), pd.Series(0.0, index=methods)
    for dataset_scores in scores.values():
        finished = dataset_scores.dropna()
        beaten = tied(finished).rank() - 1.0  # number of methods that each beats, counting ties as half
        won = won.add(beaten, fill_value=0.0)
        played = played.add(pd.Series(len(finished) - 1.0, index=finished.index), fill_value=0.0)
    return (won / played.where(played > 0)).reindex(methods)
