"""The hierarchical comparison over data sets: what is certain, what is not, and how often it errs."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from mtlscale.report.stats.hierarchical import FEWEST_DATASETS, hierarchical


def sets(mean: float, between: float, count: int = 6, seed: int = 0) -> list[NDArray[np.float64]]:
    """Differences of ten seeds on so many data sets."""
    rng = np.random.default_rng(seed)
    return [mean + between * rng.normal() + 0.5 * rng.normal(size=10) for _ in range(count)]


def test_what_is_certain() -> None:
    assert hierarchical(sets(4.0, 0.5), 1.0, draws=500).better > 0.97
    assert hierarchical(sets(-4.0, 0.5), 1.0, draws=500).worse > 0.97
    assert hierarchical(sets(0.0, 0.1), 1.0, draws=500).same > 0.97


def test_data_sets_that_disagree_leave_it_open() -> None:
    found = hierarchical([np.full(10, value) + np.linspace(-1, 1, 10) for value in (-8.0, 6.0, -5.0, 7.0)], 1.0, 1000)
    assert max(found) < 0.95 and sum(found) == pytest.approx(1.0)


def test_a_set_with_few_noisy_seeds_is_drawn_to_the_others() -> None:
    """With the mean over suites alone, one set of two wild seeds would undo five that agree."""
    noisy = [*sets(3.0, 0.2, 5), np.array([-30.0, 28.0])]
    assert np.mean([values.mean() for values in noisy]) > 1.0
    assert hierarchical(noisy, 1.0, draws=1000).better > 0.9


def test_the_sign_is_turned_with_the_differences() -> None:
    found, turned = (hierarchical([sign * values for values in sets(1.2, 0.5)], 1.0, draws=2000) for sign in (1, -1))
    assert turned.worse == pytest.approx(found.better, abs=0.06)


def test_too_few_data_sets_are_no_probability() -> None:
    few = [*sets(3.0, 0.1, FEWEST_DATASETS - 1), np.array([3.0, np.nan])]
    assert np.isnan(hierarchical(few, 1.0)).all()
