"""Task groupings: against all of them, by hand, and planted ones beyond what can be enumerated."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlscale.solvers import best_groups, grouping_score

Table = list[list[float]]


@st.composite
def tables(draw: st.DrawFn, most: int = 7) -> Table:
    size = draw(st.integers(1, most))
    return [[draw(st.floats(-2, 2, width=16)) for _ in range(size)] for _ in range(size)]


def partitions(items: list[int]) -> Iterator[list[list[int]]]:
    """All of them, straight from the definition."""
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for place, group in enumerate(rest):
            yield [*rest[:place], [items[0], *group], *rest[place + 1 :]]


def by_definition(table: Table, grouping: list[list[int]]) -> float:
    return sum(
        sum(table[i][j] for i in group if i != j) / (len(group) - 1)
        for group in grouping
        for j in group
        if len(group) > 1
    )


def is_partition(found: list[list[int]], tasks: int, groups: int) -> bool:
    return sorted(task for group in found for task in group) == list(range(tasks)) and len(found) <= groups


@given(tables(), st.integers(1, 5))
@settings(deadline=None, max_examples=60)
def test_no_partition_is_better(table: Table, groups: int) -> None:
    found = best_groups(table, groups)
    assert is_partition(found, len(table), groups) and all(found)
    every = [by_definition(table, p) for p in partitions(list(range(len(table)))) if len(p) <= groups]
    assert by_definition(table, found) == pytest.approx(max(every), abs=1e-9)
    assert grouping_score(table, found) == pytest.approx(by_definition(table, found), abs=1e-9)


@given(tables(), st.integers(1, 4))
@settings(deadline=None, max_examples=40)
def test_the_search_finds_what_the_comparison_of_all_does(table: Table, groups: int) -> None:
    searched = best_groups(table, groups, exact=0)
    assert is_partition(searched, len(table), groups)
    assert grouping_score(table, searched) == pytest.approx(grouping_score(table, best_groups(table, groups)), abs=1e-9)


@pytest.mark.parametrize(("tasks", "groups"), [(6, 2), (11, 3), (24, 3)])
def test_planted_groups_are_found(tasks: int, groups: int) -> None:
    generator = torch.Generator().manual_seed(0)
    place = torch.arange(tasks) % groups
    table = torch.where(place[:, None] == place, 0.5, -0.5) + 0.2 * torch.randn(tasks, tasks, generator=generator)
    assert best_groups(table, groups) == [list(range(g, tasks, groups)) for g in range(groups)]


def test_a_grouping_by_hand() -> None:
    table = [
        [9.0, 0.4, -0.3, 0.1],
        [0.2, 9.0, 0.0, -0.1],
        [-0.2, 0.1, 9.0, 0.3],
        [0.0, -0.2, 0.3, 9.0],
    ]  # what a task does to itself counts for nothing
    assert best_groups(table, 2) == [[0, 1], [2, 3]]
    assert grouping_score(table, [[0, 1], [2, 3]]) == pytest.approx(1.2)
    assert best_groups(table, 1) == [[0, 1, 2, 3]]


def test_tasks_that_hurt_each_other_stay_alone_as_far_as_there_are_groups() -> None:
    table = [[0.0, -1.0, -0.2], [-1.0, 0.0, -1.0], [-0.1, -1.0, 0.0]]
    assert best_groups(table, 3) == [[0], [1], [2]]
    assert best_groups(table, 2) == [[0, 2], [1]]


def test_pairs_that_were_never_measured_count_as_nothing() -> None:
    nan = math.nan
    assert best_groups([[nan, -0.5], [nan, nan]], 2) == [[0], [1]]
    assert best_groups([[nan] * 4] * 4, 3) == [[0, 1, 2, 3]]
    with pytest.raises(ValueError, match="groups"):
        best_groups([[0.0]], 0)
