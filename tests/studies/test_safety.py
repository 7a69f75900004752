"""`studies/safety.py`: training losses beside those of single-task learning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from mtlscale.records import RunRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from safety import safety


def test_tasks_and_means_are_compared_with_single_tasks_of_the_same_seed(record: Callable[..., RunRecord]) -> None:
    losses = {
        ("stl", 0): (1.0, 2.0),
        ("stl", 1): (1.0, 1.0),
        ("dsmtl_jl", 0): (1.0, 1.0),  # as large is safe
        ("dsmtl_jl", 1): (0.5, 1.7),  # one task is safe, the mean is not
        ("dsmtl_jl", 2): (0.0, 0.0),  # without its single tasks
    }
    runs = []
    for (method, seed), (a, b) in losses.items():
        run = record(method, seed, {"a": {"error": 1.0}, "b": {"error": 1.0}})
        metrics = {**run.metrics, "train": {"a": {"loss": a}, "b": {"loss": b}}}
        runs.append(run.model_copy(update={"metrics": metrics, "spec": {"architecture": {"name": method}}}))
    assert list(safety(runs, "stl"))[-1] == "| digits | dsmtl_jl | 75 | 1 of 2 | 88.3 |"
    assert not list(safety(runs[:2], "stl"))  # no method of which safety is claimed
