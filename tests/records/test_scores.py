"""Scores that are equal within rounding are equal: the first of them is the best, whatever the last bits say."""

from __future__ import annotations

import math
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from mtlscale.records import beats

NUMBERS = st.floats(-1e6, 1e6)


def last_bits(value: float, steps: int) -> float:
    for _ in range(abs(steps)):
        value = math.nextafter(value, math.copysign(math.inf, steps))
    return value


@given(NUMBERS, NUMBERS, st.integers(-4, 4), st.integers(-4, 4))
def test_the_last_bits_decide_nothing(score: float, loss: float, up: int, down: int) -> None:
    moved = (last_bits(score, up), last_bits(loss, down))
    assert not beats(moved, (score, loss)) and not beats((score, loss), moved)


def test_the_first_entry_that_differs_decides() -> None:
    assert beats((2.0, -9.0), (1.0, 0.0)) and not beats((1.0, 0.0), (2.0, -9.0))
    assert beats((1.0 + 1e-15, -1.0), (1.0, -2.0)) and not beats((1.0 + 1e-15, -2.0), (1.0, -1.0))
    assert beats((0.0, 0.0), (-math.inf, 0.0)) and not beats((-math.inf, -math.inf), (-math.inf, -math.inf))


def test_a_mean_does_not_depend_on_the_order_of_its_tasks() -> None:
    means = {sum(order) / 3 for order in permutations((0.1, 0.2, 0.3))}
    assert len(means) > 1  # so two epochs with these accuracies differ in the last bit
    assert not any(beats((one,), (other,)) for one in means for other in means)
