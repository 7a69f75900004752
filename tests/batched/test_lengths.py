"""Groups of streams by length: the cheapest there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtlscale.batched.eligibility.lengths import by_length, padded


def partitions(positions: list[int]) -> Iterator[list[list[int]]]:
    """Every way to part positions into groups."""
    if not positions:
        yield []
        return
    first, *rest = positions
    for parts in partitions(rest):
        yield [[first], *parts]
        for place in range(len(parts)):
            yield [*parts[:place], [first, *parts[place]], *parts[place + 1 :]]


@given(st.lists(st.integers(1, 30), min_size=1, max_size=6), st.floats(0, 60))
def test_no_other_grouping_costs_less(lengths: list[int], overhead: float) -> None:
    found = by_length(lengths, overhead)
    assert sorted(position for group in found for position in group) == list(range(len(lengths)))
    costs = [padded(lengths, parts) + overhead * len(parts) for parts in partitions(list(range(len(lengths))))]
    assert padded(lengths, found) + overhead * len(found) == pytest.approx(min(costs))


def test_what_a_pass_costs_decides() -> None:
    lengths = [10, 100, 11, 95]
    assert by_length(lengths, 30.0) == [[0, 2], [1, 3]]
    assert by_length(lengths, 1e9) == [[0, 1, 2, 3]]
    assert by_length(lengths, 0.0) == [[0], [2], [3], [1]]
    assert padded(lengths, [[0, 2], [1, 3]]) == 222
