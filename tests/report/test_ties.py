"""Numbers that are equal within rounding share their rank and keep their order."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.report.cells.sheet import number_column
from mtlscale.report.stats.ties import tied

LISTS = st.lists(st.integers(-5, 5).map(lambda n: n / 3) | st.just(math.nan), min_size=1, max_size=12)


@given(LISTS, st.integers(0, 2**32 - 1))
def test_values_that_are_equal_within_rounding_become_one(exact: list[float], seed: int) -> None:
    noise = np.random.default_rng(seed).integers(-3, 4, len(exact)) * np.finfo(float).eps
    values = pd.Series(exact, dtype=float)
    pd.testing.assert_series_equal(tied(values * (1 + noise)).rank(), values.rank())
    pd.testing.assert_series_equal(tied(values), values)


def test_the_best_of_a_column_is_marked_on_both_of_a_tie() -> None:
    column = number_column("accuracy", pd.Series([0.1 + 0.2, 0.3, 0.2]), "g", emphasis=True, higher=True)
    assert [cell.mark for cell in column.cells] == ["best", "best", ""]
