"""`studies/pairs.py`: gains of pairs of tasks beside the matrices of a diagnosis of all of them."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.records import RunRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import pairs

TASKS = ("a", "b", "c", "d")
PAIRS = tuple(itertools.combinations(TASKS, 2))


@pytest.fixture
def records(record: Callable[..., RunRecord]) -> list[RunRecord]:
    """Of the n-th pair, equal gains n - 1 over stl in one seed, and n + 1 in the other."""
    return [
        record(method, seed, {one: {"accuracy": score}, other: {"accuracy": 70.0}}, dataset=f"{one} {other}")
        for place, (one, other) in enumerate(PAIRS)
        for seed in (0, 1)
        for method, score in (("stl", 80.0), ("equal", 80.0 + 2 * (place + (1 if seed else -1))))
    ]


def test_gains_are_means_over_tasks_and_seeds(records: list[RunRecord]) -> None:
    found = pairs.gains(records, "stl")
    assert found == {"equal": {frozenset(pair): pytest.approx(place) for place, pair in enumerate(PAIRS)}}
    assert not pairs.gains(records[:12], "stl")  # three pairs


def test_a_matrix_that_tells_the_gains_has_correlation_one(records: list[RunRecord]) -> None:
    """What one direction has too much, the other has too little."""
    rows: list[list[float | None]] = [[None] * 4 for _ in TASKS]
    for place, (one, other) in enumerate(PAIRS):
        i, j = TASKS.index(one), TASKS.index(other)
        rows[i][j], rows[j][i] = place + 3.0, place - 3.0
    diagnosis = {"tasks": list(TASKS), "matrices": {"affinity": {"title": "affinity (TAG)", "values": rows}}}
    [_, row] = pairs.lines(pairs.gains(records, "stl"), diagnosis)
    assert row == "| affinity (TAG) | equal | 6 | +1.00 (+1.00 to +1.00) | +1.00 (+1.00 to +1.00) |"
