"""A trial of Tune is a run like any: what it leaves, and what a population's members leave."""

from __future__ import annotations

import math
import os
import queue
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from listening import Listening

from mtlscale.api import sweep
from mtlscale.config import Experiment, UserError, load_experiment
from mtlscale.data import PreparedData
from mtlscale.execution.faults import busy_machine
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.tuning.sweep import plan_sweep
from mtlscale.execution.tuning.tune import _algorithm
from mtlscale.execution.tuning.tune_recorder import TrialRecorder
from mtlscale.execution.tuning.tune_setup import Setup, setup_of
from mtlscale.execution.tuning.tune_trial import WORST, Best
from mtlscale.execution.workers.jobs import Options
from mtlscale.execution.workers.worker import failed
from mtlscale.records import Epoch, Home, read_record
from mtlscale.records.events import EpochEnded

File = Callable[..., Path]
EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "two_phases.py"
PLUGIN = Path(__file__).parents[1] / "plugins" / "uneven.py"
SPACE = "space: {training.lr: {low: 1e-4, high: 1e-1, scale: log}}"


@pytest.mark.ray
def test_a_trial_leaves_what_a_run_leaves(
    experiment_file: File, uneven: Callable[..., PreparedData], tmp_path: Path, local_ray: None
) -> None:
    """A record, and no model; one that fails its traceback. The epochs of all phases are told, and what it notes."""
    path = experiment_file(
        plugins=f"[{PLUGIN}, {EXAMPLE}, {PLUGIN.with_name('tired.py')}]",
        methods="[{architecture: searched_sharing, balancer: equal}, tired]",
        tracking="{enabled: false}",
        search="{budget: 1, algorithm: optuna, space: {training.lr: [0.02]}}",
    )
    experiment, home, watching = load_experiment(path), Home(tmp_path / "home"), Listening()
    bases = experiment.bases(dict.fromkeys(experiment.data(), uneven().manifest.fingerprint))
    good, bad = (base.tuned({"training.lr": 0.02}) for base in bases)
    checkpoint = home.run(good.run_id) / "checkpoint.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(b"PK\x03\x04 and no more")
    found = sweep(experiment, home=home, sinks=[watching])

    (record,) = found.trials["uneven", good.method]
    assert record.status == "finished" and [phase.name for phase in record.phases] == ["search"]
    assert {file.name for file in home.run(good.run_id).iterdir()} == {"record.json", "epochs.jsonl"}
    assert read_record(home.run(good.run_id)) == record
    assert len(list(home.phases.iterdir())) == 1
    epochs = [event.epoch for event in watching.events if isinstance(event, EpochEnded) and event.run_id == good.run_id]
    assert [good.epochs_behind(epoch.phase, epoch.epoch) for epoch in epochs] == [1, 2, 3, 4, 5]
    assert home.epochs(good.run_id) == epochs
    (note,) = watching.notes
    assert note.startswith(f"uneven · {good.method} · seed {good.seed}: {checkpoint} cannot be read")

    (record,) = found.trials["uneven", bad.method]
    assert record.status == "failed" and "after five steps" in str(record.error) and "\n" not in str(record.error)
    assert {file.name for file in home.run(bad.run_id).iterdir()} == {"error.txt", "epochs.jsonl"}


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("always", [False, True])
def test_a_trial_of_ray_tune_that_hangs_is_tried_again(
    always: bool, experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    """As a run that hangs: its process ends, what it was doing is kept, and in the end it is a failed trial."""
    stuck = f"{{name: stuck, mark: {tmp_path / 'mark'}, always: {str(always).lower()}, driver: {os.getpid()}}}"
    path = experiment_file(
        methods=f"[{stuck}]",
        plugins=f"[{PLUGIN}, {PLUGIN.with_name('stuck.py')}]",
        resources="{timeout_minutes: 0.1, max_failures: 1}",
        tracking="{enabled: false}",
        search="{budget: 1, algorithm: optuna, space: {training.lr: [0.02]}}",
    )
    watching = Listening()
    (record,) = next(iter(sweep(load_experiment(path), home=Home(tmp_path / "home"), sinks=[watching]).trials.values()))
    assert record.status == ("failed" if always else "finished")
    (dump,) = (tmp_path / "home" / "experiments" / "small").rglob("hung-*.txt")
    assert "stuck.py" in dump.read_text() and dump.read_text().count("Timeout (") == 1 + always
    told = f"no sign of life within 0.1 minutes; thread dumps in {dump}"
    assert [note for note in watching.notes if told in note and note.endswith("it is tried again")]
    assert not always or record.error == told


@pytest.mark.ray
@pytest.mark.slow
def test_a_search_whose_trials_get_no_worker_is_given_up_with_the_cause(
    experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    """Others hold all CPUs: what ended is kept, and the same command goes on once they are free."""
    import ray
    from ray.util import placement_group, remove_placement_group

    def within(minutes: float) -> Experiment:
        path = experiment_file(
            methods="[equal]",
            tracking="{enabled: false}",
            resources=f"{{cpus_per_worker: 2, start_minutes: {minutes}}}",
            search="{budget: 1, algorithm: optuna, space: {training.lr: [0.02]}}",
        )
        return load_experiment(path)

    home = Home(tmp_path / "home")
    others = placement_group([{"CPU": 4}])
    ray.get(others.ready())
    try:
        with pytest.raises(UserError, match=r"no worker has come up within .* minutes: each needs 2 CPUs; .*may hold"):
            sweep(within(0.02), home=home)
    finally:
        remove_placement_group(others)
    ((record,),) = sweep(within(60), home=home).trials.values()
    assert record.status == "finished"


@pytest.mark.ray
@pytest.mark.slow
def test_members_of_a_population_are_kept_apart(experiment_file: File, tmp_path: Path, local_ray: None) -> None:
    """Their last settings are not those they were trained with: no run with those may be taken for done."""
    path = experiment_file(
        methods="[mgda]",
        tracking="{enabled: false}",
        training="{epochs: 4, batch_size: 32, checkpoint_seconds: 0}",
        search=f"{{budget: 3, scheduler: pbt, interval: 1, {SPACE}}}",
    )
    home = Home(tmp_path / "home")
    (records,) = sweep(load_experiment(path), home=home).trials.values()
    assert records and {record.status for record in records} == {"finished"}  # two may end with the same settings
    assert not (home.root / "runs").exists() and not home.phases.exists()
    for record in records:
        assert read_record(home.experiment("small") / "population" / record.run_id) == record


Recorded = tuple[Setup, TrialRecorder, queue.Queue[Any]]


@pytest.fixture
def recorder_of(
    experiment_file: File, uneven: Callable[..., PreparedData], tmp_path: Path
) -> Callable[[str], Recorded]:
    """The recorder of a search, what its trials share, and the events it puts."""

    def make(lines: str) -> Recorded:
        experiment = load_experiment(experiment_file(methods="[equal]", search=f"{{{lines}, {SPACE}}}"))
        prepared, events = uneven(), queue.Queue[Any]()
        (base,) = experiment.bases(dict.fromkeys(experiment.data(), prepared.manifest.fingerprint))
        assert experiment.search is not None
        options = Options(experiment.resources)
        shared = setup_of(base, experiment.search, tmp_path, prepared.suite, tmp_path, tmp_path / "begun", options)
        return shared, TrialRecorder(shared, experiment.search, events), events

    return make


def test_tune_does_not_keep_what_a_trial_has_reported(recorder_of: Callable[[str], Recorded]) -> None:
    """Of ten thousand trials it would be a gigabyte, written to a file again and again."""
    shared, recorder, events = recorder_of("budget: 2, scheduler: asha")
    trial = SimpleNamespace(trial_id="1", config={"training.lr": 0.01})
    val = {task: {metric: 50.0, "loss": 1.0} for task, metric in shared.main.items()}
    epoch = Epoch(epoch=1, train_loss={}, val=val, seconds=0.1)

    reported = {"score": 50.0, "training_iteration": 1, "notes": ["slow"], "epoch": epoch.model_dump_json()}
    recorder._result(trial, reported)
    assert reported == {"score": 50.0, "training_iteration": 1}
    recorder._complete(trial)
    assert not recorder._epochs
    _, note, ended_epoch, end = (events.get_nowait() for _ in range(4))
    assert (note.text, ended_epoch.epoch, end.record.epochs) == ("slow", epoch, [epoch])


def test_nsga2_learns_the_objectives_of_a_trial_that_has_ended(
    recorder_of: Callable[[str], Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recorder takes records out of results: without the objectives, NSGA-II would draw by lot."""
    shared, recorder, _ = recorder_of("algorithm: nsga2, objectives: [loss, parameters], population: 3, budget: 3")
    learned: list[list[float]] = []
    monkeypatch.setattr("mtlscale.nas.evolution.Evolution.tell", lambda self, knobs, values: learned.append(values))

    searcher = _algorithm(recorder.search, shared, [], [], 3)
    trial = SimpleNamespace(trial_id="1", config=searcher.suggest("1"))
    val = {task: {"loss": loss} for task, loss in zip(shared.main, (0.5, 1.5, 4.0), strict=False)}
    run = shared.job(trial.config).run
    ended = failed(run, "").model_copy(update={"status": "finished", "metrics": {"val": val}, "parameters": 58})
    reported = {"score": 50.0, "notes": [], "record": ended.model_dump_json(), "done": True}
    recorder._result(trial, reported)
    searcher.on_trial_complete("1", reported)
    mean = sum(values["loss"] for values in val.values()) / len(val)
    assert learned == [[mean, 58.0]]

    searcher.suggest("2")
    searcher.on_trial_complete("2", error=True)
    assert learned[1:] == [[math.inf, math.inf]]


def test_an_early_phase_is_no_rival_of_a_later_one() -> None:
    """What Tune compares is of the phase a trial is in, once that has been evaluated."""

    class Shared(Setup):
        def __init__(self) -> None:
            self.__dict__.update(metric=None, main={"a": "accuracy"})

    best = Best(Shared())

    def after(phase: str, accuracy: float | None) -> float:
        val = {} if accuracy is None else {"a": {"accuracy": accuracy, "loss": 1.0}}
        return best.of(Epoch(epoch=1, phase=phase, train_loss={}, val=val, seconds=0.0))

    assert after("search", None) == WORST
    assert [after("search", value) for value in (90.0, 80.0)] == [90.0, 90.0]
    assert after("retrain", None) == 90.0
    assert [after("retrain", value) for value in (10.0, 30.0, 20.0)] == [10.0, 30.0, 30.0]


@pytest.mark.parametrize(
    ("settings", "lanes"),
    [("scheduler: asha", [2, 1, 1]), ("algorithm: optuna", [2, 1, 1]), ("scheduler: pbt", [4])],
)
def test_searches_share_the_slots(
    settings: str, lanes: list[int], experiment_file: File, uneven: Callable[..., PreparedData], tmp_path: Path
) -> None:
    """The members of a population have to train together: their search has all slots."""
    experiment = load_experiment(experiment_file(search=f"{{budget: 3, {settings}, {SPACE}}}"))
    prepared = uneven()
    (name,) = experiment.data()
    the_plan = plan_sweep(experiment, Home(tmp_path), Datasets({name: prepared.folder}, {name: prepared.manifest}))
    assert the_plan.jobs == 9
    assert the_plan.lanes(4, 3) == lanes
    assert the_plan.lanes(1, 3) == [1]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("settings", ["scheduler: asha, grace: 1", "scheduler: pbt, interval: 1"])
def test_a_trial_of_two_workers_is_one_of_one(
    settings: str, experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    """Members of a population may take another course, as their rivals' speed decides: they only have to end."""
    found = {}
    for workers in (1, 2):
        path = experiment_file(
            methods="[equal, mgda]",
            tracking="{enabled: false}",
            resources=f"{{workers: {workers}}}",
            search=f"{{budget: 3, {settings}, {SPACE}}}",
        )
        found[workers] = sweep(load_experiment(path), home=Home(tmp_path / str(workers))).trials
    for key, records in found[2].items():
        assert {record.status for record in records} == {"finished"}
        assert len(records) == 3 or "pbt" in settings  # two of a population may end with the same settings
        assert {record.workers for record in records if record.epochs and len(record.epochs) == 3} <= {2}
        alone = {record.run_id: record for record in found[1][key]}
        for record in records if "asha" in settings else ():
            for mine, other in zip(record.epochs, alone[record.run_id].epochs, strict=False):
                assert mine.train_loss == pytest.approx(other.train_loss, rel=1e-9)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("always", [False, True])
def test_a_planned_trial_that_hangs_is_tried_again_and_fails_with_the_cause(
    always: bool, experiment_file: File, tmp_path: Path, local_ray: None
) -> None:
    """As any run of the queue: its thread dump is in the log."""
    stuck = f"{{name: stuck, mark: {tmp_path / 'mark'}, always: {str(always).lower()}, driver: {os.getpid()}}}"
    path = experiment_file(
        methods=f"[{stuck}]",
        plugins=f"[{PLUGIN}, {PLUGIN.with_name('stuck.py')}]",
        resources="{timeout_minutes: 0.1, max_failures: 1}",
        tracking="{enabled: false}",
        search="{budget: 1, space: {training.lr: [0.02]}}",
    )
    home = Home(tmp_path / "home")
    ((record,),) = sweep(load_experiment(path), home=home).trials.values()
    assert record.status == ("failed" if always else "finished")
    cause = "its worker died 2 times: no sign of life within 0.1 minutes; thread dumps in the log"
    assert not always or record.error == cause
    assert (home.root / "logs" / "small.jsonl").read_text().count("stuck.py") >= 1 + always


@pytest.mark.ray
@pytest.mark.slow
def test_planned_trials_that_get_no_worker_are_given_up_with_the_cause(
    experiment_file: File, tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others hold all CPUs: Tune is ended at once, and the same command goes on once they are free."""
    import ray
    from ray.util import placement_group, remove_placement_group

    monkeypatch.setattr(busy_machine, "slowdown", lambda: 1.0)

    def within(minutes: float) -> Experiment:
        path = experiment_file(
            methods="[equal]",
            tracking="{enabled: false}",
            resources=f"{{cpus_per_worker: 2, start_minutes: {minutes}}}",
            search="{budget: 2, space: {training.lr: [0.02, 0.03]}, executor: tune}",
        )
        return load_experiment(path)

    home = Home(tmp_path / "home")
    others = placement_group([{"CPU": 4}])
    ray.get(others.ready())
    began = time.monotonic()
    try:
        (records,) = sweep(within(0.05), home=home).trials.values()
    finally:
        remove_placement_group(others)
    assert time.monotonic() - began < 90
    assert [record.status for record in records] == ["failed"] * 2
    assert str(records[0].error).startswith("no worker has come up within 0.05 minutes: each needs 2 CPUs; others may")
    (records,) = sweep(within(60), home=home).trials.values()
    assert [record.status for record in records] == ["finished"] * 2
