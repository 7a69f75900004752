"""The probability that one method is better than another, worse, or as good for all practical purposes.

The Bayesian signed-rank test of Benavoli, Corani, Demšar and Zaffalon, Time for a change, JMLR 18 (2017).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtlscale.report.stats.ranking import FEWEST_DATASETS

DRAWS = 20_000
SEED = 0
PRIOR = 0.5  # weight of the prior, which is one observation: a difference of 0


class Probabilities(NamedTuple):
    """The probabilities that a difference is above, within and below the region of practical equivalence.

    Their sum is 1.
    """

    better: float
    same: float
    worse: float


def signed_rank(differences: ArrayLike, rope: float, draws: int = DRAWS) -> Probabilities:
    """Return the probabilities that the differences on the data sets speak for.

    Weights of the data sets are drawn from a Dirichlet distribution. A draw says "better" where the weighted share of
    pairs of data sets whose mean difference is above the rope is the largest of the three shares.

    Args:
        differences: One per data set, positive where better; NaN is ignored.
        rope: Half the width of the region of practical equivalence, in the unit of the differences.
        draws: Number of drawn weights.

    Returns:
        The probabilities; NaN with fewer than FEWEST_DATASETS differences.
    """
    measured = np.asarray(differences, dtype=float)
    measured = np.sort(measured[~np.isnan(measured)])  # the result must not depend on the order of the data sets

    if len(measured) < FEWEST_DATASETS:
        return Probabilities(math.nan, math.nan, math.nan)

    values = np.concatenate([[0.0], measured])
    sums = values[:, None] + values
    above, below = (np.heaviside(side * sums - 2.0 * rope, 0.5) for side in (1.0, -1.0))

    weights = _weights(len(values), draws)
    better, worse = ((weights @ side * weights).sum(axis=1) for side in (above, below))
    shares = np.stack([better, 1.0 - better - worse, worse])
    wins = np.bincount(shares.argmax(axis=0), minlength=3)
    return Probabilities(*(wins / draws).tolist())


@lru_cache(maxsize=1)
def _weights(count: int, draws: int) -> NDArray[np.float64]:
    """Draw weights [draws, count] of the prior's observation and the data sets; the same for every method."""
    return np.random.default_rng(SEED).dirichlet([PRIOR, *[1.0] * (count - 1)], size=draws)
