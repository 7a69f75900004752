"""`studies/structures.py`: learned trees in words, and how often they are the expected ones."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.records import PhaseCost, RunRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import structures

APART, TOGETHER, PARTLY = [[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 1, 0]]
TASKS = ["a", "b", "c"]


@pytest.fixture
def searched(record: Callable[..., RunRecord]) -> Callable[..., RunRecord]:
    def make(method: str, seed: int, tree: list[list[int]], dataset: str = "unlike") -> RunRecord:
        search = PhaseCost(name="search", phase_id="0", epochs=1, steps=1, seconds=1.0)
        run = record(method, seed, {"a": {"error": 1.0}}, experiment="conal_synthetic", dataset=dataset)
        return run.model_copy(update={"structure": {"tree": tree, "tasks": TASKS}, "phases": [search]})

    return make


def test_trees_in_words() -> None:
    assert structures.words(APART, TASKS) == "separate networks"
    assert structures.words(TOGETHER, TASKS) == "everything shared"
    assert structures.words(PARTLY, TASKS) == "1 {a, b, c}; 2 {a, c} {b}"
    assert structures.words([[0, 0, 0], [0, 0, 0], [2, 2, 1]], TASKS) == "1-2 {a, b, c}; 3 {a, b} {c}"


def test_share_of_seeds_with_the_expected_tree(searched: Callable[..., RunRecord]) -> None:
    runs = [searched("conal", seed, tree) for seed, tree in enumerate([APART, APART, PARTLY, TOGETHER])]
    runs += [searched("ltb", seed, TOGETHER, "alike") for seed in range(2)]
    lines = list(structures.shares(runs))
    assert lines[-2:] == [
        "| unlike | separate networks | conal | – | 2 of 4 | 50 | 2, 3 |",
        "| alike | everything shared | ltb | – | 2 of 2 | 100 | – |",
    ]


def test_branch_points_are_counted_strictly(searched: Callable[..., RunRecord]) -> None:
    """A task alone on the trunk has a tree of separate networks, and not the branch point of one."""
    tables = [{"a": [0.4, 0.3, 0.3], "b": [0.5, 0.3, 0.2]}, {"a": [0.4, 0.3, 0.3], "b": [0.3, 0.3, 0.4]}]
    runs = []
    for seed, table in enumerate(tables):
        run = searched("conal", seed, APART)
        epochs = [epoch.model_copy(update={"traces": {"branching": table}}) for epoch in run.epochs]
        runs.append(run.model_copy(update={"epochs": epochs}))
    assert list(structures.shares(runs))[-1] == "| unlike | separate networks | conal | 1 of 2 | 2 of 2 | 100 | – |"


def test_branch_points_are_counted_over_tasks_and_seeds(record: Callable[..., RunRecord]) -> None:
    tables = [{"a": [0.4, 0.3, 0.3], "b": [0.1, 0.3, 0.6]}, {"a": [0.4, 0.3, 0.3], "b": [0.2, 0.5, 0.3]}]
    runs = []
    for seed, table in enumerate(tables):
        run = record("conal", seed, {"a": {"error": 1.0}})
        epochs = [epoch.model_copy(update={"traces": {"branching": table}}) for epoch in run.epochs[:2]]
        runs.append(run.model_copy(update={"epochs": epochs}))
    assert list(structures.point_shares(runs))[-1] == "| digits | conal | 50 25 25 | 2 |"
    assert not list(structures.point_shares([record("stl", 0, {"a": {"error": 1.0}})]))


def test_equal_trees_stand_in_one_row_and_networks_without_a_search_in_none(searched: Callable[..., RunRecord]) -> None:
    runs = [searched("conal", seed, tree) for seed, tree in enumerate([APART, PARTLY, PARTLY])]
    runs.append(searched("stl", 0, APART).model_copy(update={"phases": []}))
    rows = [line for line in structures.trees(runs) if line.startswith("| unlike")]
    assert rows == [
        "| unlike | conal | 1 {a, b, c}; 2 {a, c} {b} | 0.001 | 1, 2 |",
        "| unlike | conal | separate networks | 0.001 | 0 |",
    ]


def test_conflicts_are_means_over_epochs_in_percent(record: Callable[..., RunRecord]) -> None:
    run = record("conal", 0, {"a": {"error": 1.0}})
    epochs = [epoch.model_copy(update={"traces": {"conflict_ratio": [0.5 * place, 0.1]}}) for place, epoch in
              enumerate(run.epochs[:2])]  # fmt: skip
    lines = list(structures.conflicts([run.model_copy(update={"epochs": epochs})]))
    assert lines[-1] == "| digits | conal | 25.00 10.00 | – | – | 2 |"
    more = [
        epoch.model_copy(update={"traces": {**epoch.traces, "applied_ratio": [0.0, 0.1], "moved_ratio": [0.25, 1.0]}})
        for epoch in epochs
    ]
    lines = list(structures.conflicts([run.model_copy(update={"epochs": more})]))
    assert lines[-1] == "| digits | conal | 25.00 10.00 | 0.00 10.00 | 25.00 100.00 | 2 |"


def test_an_experiment_without_a_search_has_no_such_sections(board_records: list[RunRecord]) -> None:
    assert list(structures.found(board_records)) == []
