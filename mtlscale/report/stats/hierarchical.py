"""The hierarchical comparison of a method with a reference over data sets, from the runs of every seed.

Corani, Benavoli, Demšar, Mangili and Zaffalon, Statistical comparison of classifiers through Bayesian hierarchical
modelling, Machine Learning 106 (2017). Seeds are independent runs here, so their correlation is 0. Sampled by Gibbs
steps: Student's t is a normal distribution with a gamma-distributed precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mtlscale.report.stats.bayes import Probabilities

DRAWS, BURN_IN = 4_000, 1_000
FEWEST_DATASETS = 3  # a flat prior on the spread over data sets has no proper posterior with fewer
SEED = 0
_FREEDOMS = np.array([1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0])  # degrees of freedom, equally likely beforehand
_LEAST = 1e-6  # standard deviation of differences that are all the same


def hierarchical(differences: Sequence[NDArray[np.float64]], rope: float, draws: int = DRAWS) -> Probabilities:
    """Return how probably a further data set's mean difference is above, within or below the rope.

    The mean differences of data sets are drawn from Student's t, of unknown mean, scale and degrees of freedom; a
    data set's runs are normal around its mean. A draw of the posterior says what is likeliest on the next data set.

    Args:
        differences: Of each data set, one per seed, positive where better; NaN is ignored.
        rope: Half the width of the region of practical equivalence.
        draws: Number of draws that are kept.

    Returns:
        The probabilities; NaN with fewer than FEWEST_DATASETS data sets of two seeds.
    """
    from scipy import stats

    samples = [values[~np.isnan(values)] for values in differences]
    samples = [values for values in samples if len(values) > 1]
    if len(samples) < FEWEST_DATASETS:
        return Probabilities(math.nan, math.nan, math.nan)

    location, scale, freedom = _posterior(samples, draws)
    above = stats.t.sf((rope - location) / scale, freedom)
    below = stats.t.cdf((-rope - location) / scale, freedom)
    wins = np.bincount(np.stack([above, 1.0 - above - below, below]).argmax(axis=0), minlength=3)
    return Probabilities(*(wins / draws).tolist())


def _posterior(samples: Sequence[NDArray[np.float64]], draws: int) -> NDArray[np.float64]:
    """Draw location, scale and degrees of freedom [3, draws] of the distribution over data sets."""
    rng = np.random.default_rng(SEED)
    counts = np.array([len(values) for values in samples], dtype=float)
    means = np.array([values.mean() for values in samples])
    squares = np.array([((values - values.mean()) ** 2).sum() for values in samples]) + _LEAST**2
    sets = len(samples)

    deltas, location = means.copy(), float(means.mean())
    variance, freedom, precisions = max(float(means.var(ddof=1)), _LEAST**2), 5.0, np.ones(sets)

    kept = np.empty((3, draws))
    for step in range(BURN_IN + draws):
        noise = (squares + counts * (means - deltas) ** 2) / 2 / rng.gamma(counts / 2)
        weight = counts / noise
        prior = precisions / variance
        deltas = (weight * means + prior * location) / (weight + prior) + rng.normal(size=sets) / np.sqrt(
            weight + prior
        )

        location = float((precisions * deltas).sum() / precisions.sum())
        location += float(rng.normal()) * math.sqrt(variance / precisions.sum())
        distances = (deltas - location) ** 2
        variance = float((precisions * distances).sum() / 2 / rng.gamma((sets - 1) / 2)) + _LEAST**2

        precisions = rng.gamma((freedom + 1) / 2, 2 / (freedom + distances / variance))
        freedom = _freedom(precisions, rng)
        if step >= BURN_IN:
            kept[:, step - BURN_IN] = location, math.sqrt(variance), freedom
    return kept


def _freedom(precisions: NDArray[np.float64], rng: np.random.Generator) -> float:
    """Draw the degrees of freedom, of which the precisions are gamma-distributed."""
    half = _FREEDOMS / 2
    log_density = len(precisions) * (half * np.log(half) - np.array([math.lgamma(value) for value in half]))
    log_density += (half - 1) * np.log(precisions).sum() - half * precisions.sum()
    weights = np.exp(log_density - log_density.max())
    return float(rng.choice(_FREEDOMS, p=weights / weights.sum()))
