"""Which trials are batched, and with which others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mtlscale.architectures import OptimizerSpec, Phase, Turn
from mtlscale.architectures.hard.hps import HPS
from mtlscale.batched.eligibility import planning
from mtlscale.batched.eligibility.decision import pays_alone
from mtlscale.config import load_experiment, trials
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare

File = Callable[..., Path]


def test_trials_of_different_shapes_are_batched_apart(experiment_file: File, digits: PreparedData) -> None:
    search = "{budget: 12, algorithm: grid, space: {model.encoder.hidden: [[4], [8]], model.dropout: [0, 0.1, 0.2], "
    search += "training.lr: [0.01, 0.1]}}"
    experiment = load_experiment(experiment_file(datasets="[digits]", methods="[equal]", search=search))
    (base,) = experiment.bases(dict.fromkeys(experiment.data(), ""))
    assert experiment.search is not None
    groups = planning.groups(trials(experiment.search, base))
    assert sorted(len(group) for group in groups) == [6, 6]  # a rate of zero fits the others
    assert sum(len(part) for part in planning.shares(groups[0], 4)) == 6


def test_what_cannot_be_batched_is_named(experiment_file: File, digits: PreparedData) -> None:
    for method, word in (("graddrop", "balancer"), ("mgda_ub", "balancer"), ("meta_weighting", "balancer")):
        experiment = load_experiment(experiment_file(datasets="[digits]", methods=f"[{method}]"))
        run = next(experiment.runs(dict.fromkeys(experiment.data(), "")))
        assert word in str(planning.obstacle(run, digits.suite))
    experiment = load_experiment(experiment_file(datasets="[digits]", methods="[constant]"))
    run = next(experiment.runs(dict.fromkeys(experiment.data(), "")))
    assert planning.obstacle(run, digits.suite) == "architecture constant is not batchable"


@pytest.mark.parametrize(
    "phases",
    [
        (Phase(name="search"), Phase(name="retrain")),
        (Phase(turns=(Turn(), Turn(name="other", share="second"))),),
        (Phase(turns=(Turn(optimizer=OptimizerSpec(training={"lr": 0.1})),)),),
        (Phase(epochs=3),),
    ],
)
def test_architectures_with_phases_or_turns_of_their_own_are_never_batched(
    phases: tuple[Phase, ...], experiment_file: File, digits: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load_experiment(experiment_file(datasets="[digits]", methods="[equal]"))
    run = next(experiment.runs(dict.fromkeys(experiment.data(), "")))
    assert planning.obstacle(run, digits.suite) is None
    monkeypatch.setattr(HPS, "phases", lambda self: phases)
    assert planning.obstacle(run, digits.suite) == "architecture hps has phases or turns of its own"


def test_streams_without_labels_are_not_batched(experiment_file: File, digits: PreparedData) -> None:
    experiment = load_experiment(experiment_file(datasets="[digits]", methods="[equal]"))
    run = next(experiment.runs(dict.fromkeys(experiment.data(), "")))
    assert "without labels" in str(planning.obstacle(run, replace(digits.suite, unlabelled=("more",))))


def test_a_short_run_on_many_tasks_is_batched_by_itself(
    experiment_file: File, digits: PreparedData, tmp_path: Path
) -> None:
    many = load_prepared(prepare("synthetic", {"tasks": 40, "samples": 20, "special": 1}, None, tmp_path))
    experiment = load_experiment(experiment_file(datasets="[digits]", methods="[equal, graddrop]"))
    equal, graddrop = experiment.runs(dict.fromkeys(experiment.data(), ""))
    assert pays_alone(equal, many, steps=100, processes=1)
    assert not pays_alone(equal, many, steps=1_000_000, processes=1)  # long enough to need checkpoints
    assert not pays_alone(graddrop, many, steps=100, processes=1)
    assert not pays_alone(equal, digits, steps=100, processes=1)
    files_alone = equal.tuned({"training.reader": "mapped"})  # which no batch holds as a whole
    assert not pays_alone(files_alone, many, steps=100, processes=1)
