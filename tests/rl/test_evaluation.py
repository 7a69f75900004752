"""Policies measured by episodes: the same for any workers, and what chooses the epoch where it is the main metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from two_workers import two_workers

from mtlscale.architectures import MultiTaskModule
from mtlscale.batched.eligibility import planning
from mtlscale.config import Experiment, Run, UserError
from mtlscale.data import PreparedData, Workers
from mtlscale.data.readers.prepared import load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import Metrics, RunRecord
from mtlscale.rl.environments import EXTRA, MetaWorld, Simulated, expert_of
from mtlscale.rl.evaluation import EpisodeEvaluator, Simulation
from mtlscale.training import Trainer, build_model, finish, train
from mtlscale.training.evaluation.select import Selection

pytest.importorskip("metaworld")

TASKS = ("reach", "drawer-close")
HORIZON = 100
OPTIONS = {"tasks": TASKS, "demonstrations": 20, "horizon": HORIZON, "episodes": 4, "val_episodes": 2}
TRAINING = {"epochs": 2, "batch_size": 64, "lr": 3e-3, "dtype": "float64"}
EXPERT = {"architecture": "scripted_expert"}


def run_of(method: Any, training: dict[str, Any] | None = None, dropout: float = 0.0, **dataset: Any) -> Run:
    experiment = Experiment.model_validate(
        {
            "name": "arms",
            "datasets": [{"name": "metaworld", "label": "arms", "options": OPTIONS, **dataset}],
            "methods": [method],
            "floors": [],
            "seeds": [0],
            "model": {"encoder": {"name": "mlp", "hidden": [32, 32]}, "dropout": dropout},
            "training": {**TRAINING, **(training or {})},
        }
    )
    return next(experiment.runs({"arms": "arms"}))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return load_prepared(prepare("metaworld", OPTIONS, None, tmp_path_factory.mktemp("home"), engine="local"))


def described(data: PreparedData, **changed: Any) -> PreparedData:
    """The set with another description of its environments."""
    told = {**data.suite.extras[EXTRA], **changed}
    return replace(data, suite=replace(data.suite, extras={**data.suite.extras, EXTRA: told}))


def with_returns(data: PreparedData) -> PreparedData:
    asked = tuple(replace(task, metrics=("success", "return")) for task in data.suite.tasks)
    return replace(data, suite=replace(data.suite, tasks=asked))


def simulation_of(data: PreparedData, workers: Workers | None = None) -> Simulation:
    found = Simulation.of(data.suite, workers or Workers(), torch.device("cpu"), torch.float64)
    assert found is not None
    return found


def model_of(data: PreparedData, method: Any, dropout: float = 0.0) -> MultiTaskModule:
    torch.manual_seed(3)
    return build_model(run_of(method, dropout=dropout), data.suite)[0].double()


def mean(metrics: Metrics, metric: str) -> float:
    return sum(metrics[task][metric] for task in TASKS) / len(TASKS)


# -- what is measured ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_cloning_learns_what_random_actions_do_not(data: PreparedData) -> None:
    cloned = train(run_of("equal", {"epochs": 12, "evaluate_every": 12}), data)
    floor = train(run_of({"architecture": "random_actions"}), data)
    expert = train(run_of(EXPERT), data)
    assert {record.status for record in (cloned, floor, expert)} == {"finished"}
    assert mean(cloned.metrics["test"], "success") >= mean(floor.metrics["test"], "success") + 35.0
    assert [expert.metrics["test"][task]["success"] for task in TASKS] == [100.0, 100.0]
    assert max(expert.metrics["test"][task]["mse"] for task in TASKS) < 1e-8
    for record in (cloned, floor, expert):
        assert record.counters == {"environments_replaced": 0}
        assert record.main_metrics == dict.fromkeys(TASKS, "success")
        assert all(record.metrics["test"][task]["success"] % 25 == 0 for task in TASKS)  # of four episodes
        assert all(math.isnan(record.metrics["train"][task]["success"]) for task in TASKS)


def by_hand(data: PreparedData, split: str, task: str, policy: Callable[[np.ndarray], np.ndarray]) -> list[list[float]]:
    """Whether each episode of a split succeeds [episodes], and its rewards' sum, of observations to actions."""
    told = Simulated.of(data.suite)
    assert told is not None
    world, found = MetaWorld(task, told.reward_version), []
    for number in range(told.episodes[split]):
        observation, won, total = world.reset(told.goal(split, number)), False, 0.0
        for _ in range(told.horizon):
            observation, reward, success = world.step(policy(observation))
            won, total = won or success, total + reward
        found.append([float(won), total])
    return [list(each) for each in zip(*found, strict=True)]


@pytest.mark.parametrize("reward_version", ["v2", "v1"])
def test_success_and_return_are_those_of_a_plain_loop_over_whole_episodes(
    reward_version: str, data: PreparedData
) -> None:
    changed = with_returns(described(data, reward_version=reward_version))
    simulation = simulation_of(changed)
    found = simulation.measured(model_of(changed, EXPERT), "test")
    assert simulation._vector_env.steps == len(TASKS) * 4 * HORIZON
    for task in TASKS:
        won, totals = by_hand(changed, "test", task, expert_of(task))
        assert found[task]["success"] == 100.0 * sum(won) / 4
        assert found[task]["return"] == pytest.approx(sum(totals) / 4, rel=1e-3)
        assert np.ptp(totals) > 0.1


def test_without_a_return_episodes_end_with_their_success(data: PreparedData) -> None:
    simulation = simulation_of(data)
    found = simulation.measured(model_of(data, EXPERT), "test")
    assert found == {task: {"success": 100.0} for task in TASKS}
    assert simulation._vector_env.steps < len(TASKS) * 4 * 90


def test_fixed_positions_are_measured_once(data: PreparedData) -> None:
    simulation = simulation_of(described(data, positions="fixed", horizon=20))
    simulation.measured(model_of(data, EXPERT), "test")
    assert simulation._vector_env.steps == len(TASKS) * 20


def test_measuring_draws_nothing_and_drops_nothing_out(data: PreparedData) -> None:
    changed = with_returns(described(data, horizon=20))
    simulation, model = simulation_of(changed), model_of(changed, "equal", dropout=0.5)
    before = torch.get_rng_state()
    found = [simulation.measured(model.train(), "test") for _ in range(2)]
    assert found[0] == found[1]
    assert not model.training
    assert torch.equal(torch.get_rng_state(), before)


def test_some_of_the_tasks_keep_their_places_among_the_inputs(data: PreparedData) -> None:
    record = train(run_of(EXPERT, tasks=["drawer-close"]), data)
    assert list(record.metrics["test"]) == ["drawer-close"]
    assert record.metrics["test"]["drawer-close"]["success"] == 100.0


# -- workers and epochs --------------------------------------------------------------------------------------------


def measured_by(job: tuple[str, Any, dict[str, Any]], workers: Workers) -> dict[str, Any]:
    """What a run of a prepared set ends with. In so many steps an expert solves some episodes."""
    folder, method, training = job
    run, data = run_of(method, training, metrics=["success", "return", "mse"]), load_prepared(Path(folder))
    record = finish(Trainer(run, described(data, horizon=46, episodes={"val": 1, "test": 3}), workers=workers))
    assert record.status == "finished", record.error
    return {"metrics": record.metrics, "val": [epoch.val for epoch in record.epochs], "chosen": record.chosen_epoch}


def flat(found: Any) -> list[float]:
    if isinstance(found, dict):
        return [value for key in sorted(found) for value in flat(found[key])]
    if isinstance(found, list):
        return [value for each in found for value in flat(each)]
    return [] if found is None else [float(found)]


@pytest.mark.slow
def test_two_workers_measure_what_one_does(data: PreparedData) -> None:
    """Each plays episodes of its own."""
    jobs = [(str(data.folder), method, {"epochs": 1}) for method in ("equal", EXPERT)]
    first, second = two_workers(measured_by, jobs)
    for job, one, other in zip(jobs, first, second, strict=True):
        assert str(one) == str(other)
        alone = measured_by(job, Workers())
        assert alone["chosen"] == one["chosen"]
        np.testing.assert_allclose(flat(one), flat(alone), rtol=1e-6)
    assert 0.0 < mean(first[1]["metrics"]["test"], "success") < 100.0


def test_success_on_validation_chooses_the_epoch(data: PreparedData) -> None:
    record = train(run_of("equal", {"epochs": 4}), described(data, horizon=60))
    scores = [(mean(epoch.val, "success"), -mean(epoch.val, "loss"), epoch.epoch) for epoch in record.epochs]
    best = max(scores, key=lambda score: score[:2])
    assert record.chosen_epoch == best[2]
    chosen = next(epoch for epoch in record.epochs if epoch.epoch == record.chosen_epoch)
    assert {task: record.metrics["val"][task]["success"] for task in TASKS} == {
        task: chosen.val[task]["success"] for task in TASKS
    }


def test_a_higher_success_is_chosen_though_the_loss_is_higher(data: PreparedData) -> None:
    selection = Selection()
    for epoch, success, loss in ((1, 25.0, 0.3), (2, 75.0, 0.9), (3, 50.0, 0.1)):
        val = {task: {"success": success, "mse": loss, "loss": loss} for task in TASKS}
        selection.choose(epoch, val, data.suite, "metric", independent=False)
    assert selection.best_epoch == {"": 2}


def test_a_run_that_is_cut_off_is_measured_as_undisturbed(data: PreparedData, tmp_path: Path) -> None:
    run, short = (
        run_of("equal", {"checkpoint_seconds": 0, "steps_per_epoch": 3}),
        with_returns(described(data, horizon=20)),
    )
    next(Trainer(run, short, folder=tmp_path).train())
    records: list[RunRecord] = [finish(Trainer(run, short, folder=folder)) for folder in (tmp_path, None)]
    found, wanted = (flat([record.metrics, [epoch.val for epoch in record.epochs]]) for record in records)
    np.testing.assert_array_equal(found, wanted)


def test_a_run_that_diverges_says_so_and_blames_no_world(data: PreparedData) -> None:
    record = train(run_of("equal", {"optimizer": "sgd", "lr": 1e300, "steps_per_epoch": 1}), data)
    assert record.status == "diverged"
    assert str(record.error).startswith("equal: loss of task reach is nan in step 2")
    assert record.counters == {"environments_replaced": 0}


# -- who plays no episodes -----------------------------------------------------------------------------------------


def test_runs_that_play_episodes_are_not_batched(data: PreparedData) -> None:
    assert planning.obstacle(run_of("equal"), data.suite) == "tasks that are environments run one by one"
    plain = replace(data.suite, tasks=tuple(replace(task, metrics=("mse",)) for task in data.suite.tasks))
    assert planning.obstacle(run_of("equal"), plain) is None


def test_without_a_metric_of_episodes_none_is_played(data: PreparedData) -> None:
    trainer = Trainer(run_of("equal", metrics=["mse"]), data)
    assert isinstance(trainer.evaluator, EpisodeEvaluator) and trainer.evaluator.simulation is None
    record = finish(trainer)
    assert set(record.metrics["test"]["reach"]) == {"mse", "loss"}
    assert record.counters == {}


def test_success_where_there_is_no_environment_is_refused(data: PreparedData) -> None:
    plain = replace(data, suite=replace(data.suite, extras={}))
    message = "metric success of task reach is measured by episodes in its environment, the tasks of metaworld are none"
    with pytest.raises(UserError, match=message):
        Trainer(run_of("equal"), plain)


def test_data_of_another_version_of_the_package_are_refused(data: PreparedData) -> None:
    with pytest.raises(UserError, match=r"data are of metaworld 2\.0\.0, here is .*: pip install metaworld==2"):
        Trainer(run_of("equal"), described(data, version="2.0.0"))
