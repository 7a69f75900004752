"""`studies/gains.py`: gains over a reference, by data set and over all of them."""

from __future__ import annotations

import math
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import Experiment
from mtlscale.records import RunRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import gains as program

Record = Callable[..., RunRecord]


def runs(record: Record) -> list[RunRecord]:
    """On `one` the method gains 2 and 4 by seed in a and nothing in b; on `two` it loses 1; `three` has one seed."""
    values = {
        ("equal", "one", 0): (70.0, 60.0),
        ("equal", "one", 1): (72.0, 60.0),
        ("mine", "one", 0): (72.0, 60.0),
        ("mine", "one", 1): (76.0, 60.0),
        ("equal", "two", 0): (50.0, 50.0),
        ("mine", "two", 0): (49.0, 49.0),
        ("mine", "two", 1): (99.0, 99.0),  # without its reference
        ("equal", "three", 0): (50.0, 50.0),
        ("mine", "three", 0): (51.0, 50.0),
    }
    return [
        record(method, seed, {"a": {"accuracy": a, "error": 100.0 - a}, "b": {"accuracy": b}}, dataset=dataset)
        for (method, dataset, seed), (a, b) in values.items()
    ]


def test_gains_are_means_over_tasks_and_seeds_of_what_both_have(record: Record) -> None:
    found = {g.dataset: g for g in program.gains(runs(record), "mine", "equal", "accuracy", lambda dataset, task: True)}
    assert {name: gain.seeds for name, gain in found.items()} == {"one": (1.0, 2.0), "two": (-1.0,), "three": (0.5,)}
    assert found["one"].mean == 1.5 and math.isnan(found["one"].half), "two seeds have no interval"
    assert program.Gain("four", (1.0, 2.0, 3.0)).half == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    # One value for each set, however many seeds it has.
    assert program.summary(list(found.values())).startswith("| +0.333 ± 3.126 | 3 | 2 | 0.69")


def test_lower_is_better_is_turned_round_and_tasks_without_the_metric_are_left_out(record: Record) -> None:
    found = program.gains(runs(record), "mine", "equal", "error", lambda dataset, task: True)
    assert {gain.dataset: gain.seeds for gain in found} == {"one": (2.0, 4.0), "two": (-1.0,), "three": (1.0,)}


def test_sides_with_and_without_noise_are_apart(record: Record) -> None:
    experiment = Experiment.model_validate(
        {
            "name": "noise",
            "datasets": [
                {"name": "digits", "label": "one", "tasks": ["a", "b"], "noise": {"share": 0.2, "tasks": ["b"]}},
                {"name": "digits", "label": "two", "noise": 0.2},
                {"name": "digits", "label": "three", "noise": 0},
            ],
            "methods": ["equal"],
        }
    )
    found = {
        name: {gain.dataset: gain.mean for gain in program.gains(runs(record), "mine", "equal", "accuracy", part)}
        for name, part in program.parts(experiment).items()
    }
    assert found == {
        "sets with noise in some tasks": {"one": 1.5},
        "sets with noise in all tasks": {"two": -1.0},
        "sets with noise in no tasks": {"three": 0.5},
        "of some: the tasks with noise": {"one": 0.0},
        "of some: the tasks without": {"one": 3.0},
    }


def test_the_picture_is_drawn_and_a_home_without_runs_is_said(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = program.gains(runs(record), "mine", "equal", "accuracy", lambda dataset, task: True)
    assert program.picture(found, "mine over equal", tmp_path / "gains.png").stat().st_size > 5_000
    monkeypatch.setattr(sys, "argv", ["gains.py", "svd_noise_yeast_cpu", "--home", str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(program.__file__), run_name="__main__")  # as a process does, without its imports
    done = capsys.readouterr()
    assert ended.value.code == 2 and done.err.count("\n") == 1
    assert "has finished runs of svd_reweighting and equal" in done.err and not done.out
