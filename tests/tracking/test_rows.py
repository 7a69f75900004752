"""What people see first in MLflow: rows, few numbers, models."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tracked import EPOCHS, epoch_of, give_database, record_of, runs_of

from mtlscale.api.mlflow_rows import rows_of
from mtlscale.config import Experiment
from mtlscale.records import Home, Ledger, RunRecord
from mtlscale.report.results import Results
from mtlscale.tracking import Tracker
from mtlscale.tracking.link import methods_link
from mtlscale.tracking.sync import sync
from mtlscale.tracking.values import MAX_METRICS, end_metrics, epoch_metrics


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a home with an MLflow database whose tables are there."""
    give_database(tmp_path / "home")
    return Home(tmp_path / "home")


def found_in(home: Home) -> dict[str, list[Any]]:
    """Kind -> MLflow's runs."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=home.tracking_uri)
    found: dict[str, list[Any]] = {}
    for run in client.search_runs([client.get_experiment_by_name("small").experiment_id]):
        found.setdefault(run.data.tags["mtlscale.kind"], []).append(run)
    return found


def written(experiment: Experiment, home: Home) -> list[RunRecord]:
    """A ledger in which each run has another result, and one has failed."""
    ledger, records = Ledger(home.ledger("small")), []
    for number, run in enumerate(runs_of(experiment)):
        metrics = {task: {"accuracy": 50.0 + number} for task in ("a", "b")}
        status = "failed" if number == 0 else "finished"
        record = record_of(run, status).model_copy(update={"metrics": {"val": metrics, "test": metrics}})
        ledger.append(record)
        records.append(record)
    return records


def test_rows_say_what_the_leaderboard_says(small: Callable[..., Experiment], home: Home) -> None:
    experiment = small(seeds="[0, 1, 2, 3]")
    results = Results(experiment, tuple(written(experiment, home)), home.experiment("small"))
    told: list[str] = []
    assert sync(experiment, home, lambda: rows_of(results), told.append) == (12, 0)
    assert told[-1].endswith("/#/experiments/1/runs?workflowType=machine_learning&viewStateShareKey=methods")
    known = next(record for record in results.records if record.status == "finished")
    place = methods_link(home.tracking_uri, known.run_id)
    assert place is not None and told[-1].endswith(f"/{place}")
    assert methods_link(home.tracking_uri, "no run") is None
    board, found = results.leaderboard().tables["uneven"].rows, found_in(home)
    assert sorted(run.info.run_name for run in found["row"]) == ["equal · uneven", "mgda · uneven", "stl · uneven"]
    for row in found["row"]:
        of, told_of = board.loc[row.data.params["method"]], row.data.metrics
        assert told_of["test.mean"] == of["average"] and told_of["test.mean_interval"] == of["average_ci"]
        assert (told_of["delta"], told_of["eta"]) == (of["delta_i"], of["safeness"])
        assert (told_of["mean_rank"], told_of["seconds"]) == (of["mean_rank"], of["total_seconds"])
        assert (told_of["seeds_finished"], told_of["seeds_failed"]) == (of["finished"], of["failed"])
        assert row.info.status == "FINISHED" and "mlflow.parentRunId" not in row.data.tags
        below = [run for run in found["run"] if run.data.tags["mlflow.parentRunId"] == row.info.run_id]
        method = row.data.params["method"]
        assert sorted(run.info.run_name for run in below) == [f"{method} · seed {seed}" for seed in range(4)]
    # The same again adds nothing, not even a point of a curve.
    import mlflow

    assert sync(experiment, home, lambda: rows_of(results)) == (0, 12)
    client = mlflow.MlflowClient(tracking_uri=home.tracking_uri)
    assert len(client.get_metric_history(found["row"][0].info.run_id, "test.mean")) == 1
    # As people search.
    place = client.get_experiment_by_name("small")
    query = "params.method = 'mgda' and params.dataset = 'uneven' and params.seed = '1'"
    (one,) = client.search_runs([place.experiment_id], query)
    assert one.info.run_name == "mgda · seed 1" and one.data.params["label"] == "mgda · uneven"
    assert len(client.search_runs([place.experiment_id], "dataset.name = 'uneven' and dataset.context = 'train'")) == 12
    assert place.tags["mlflow.note.content"].startswith("[Methods compared](#/experiments/1/runs?")
    view = json.loads(place.tags["mlflow.sharedViewState.methods"])
    assert view["orderByKey"] == "metrics.`place`" and view["columnOrder"][-1] == "duration"
    assert view["columnOrder"][0] == view["selectedColumns"][0] == "metrics.`test.mean`"


def test_rows_follow_while_runs_go_on(
    small: Callable[..., Experiment], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was left in the middle is taken up by the next driver, and not made again."""
    from mtlscale.tracking import tracker as module

    monkeypatch.setattr(module, "ROWS_SECONDS", 0.0)
    experiment = small(seeds="[0, 1]", methods="[equal]")
    ended: list[RunRecord] = []
    results = Results(experiment, (), home.experiment("small"))

    def table() -> Any:
        return rows_of(Results(results.experiment, tuple(ended), results.folder))

    for number, run in enumerate(runs_of(experiment)):
        tracker = Tracker(experiment, home, table=table)
        ended.append(record_of(run))
        tracker.finished(run, ended[-1], home.run(run.run_id))
        assert tracker.close("FINISHED" if number else "KILLED") is None
        (row,) = found_in(home)["row"]
        assert row.info.status == ("FINISHED" if number else "KILLED")
        assert row.data.metrics["seeds_finished"] == number + 1
        assert row.data.metrics["test.mean"] == 50.0 + number / 2


@pytest.mark.parametrize("tasks", [1, 2, 3, 5, 8, 14, 15, 16, 40])
@pytest.mark.parametrize("shared", [True, False])
def test_a_summary_is_short_and_has_what_matters(tasks: int, shared: bool, small: Callable[..., Experiment]) -> None:
    (run, *_), names = runs_of(small()), [f"t{number}" for number in range(tasks)]
    main = {name: "accuracy" if shared or number % 2 else "rmse" for number, name in enumerate(names)}
    metrics = {name: {main[name]: 1.0 + number, "loss": 0.5} for number, name in enumerate(names)}
    epoch = epoch_of(1).model_copy(
        update={"train_loss": dict.fromkeys(names, 1.5), "weights": dict.fromkeys(names, 1.0), "val": metrics}
    )
    splits = dict.fromkeys(("train", "val", "test", "test_unseen"), metrics)
    record = record_of(run).model_copy(update={"main_metrics": main, "metrics": splits, "epochs": [epoch] * EPOCHS})
    epochs, _ = epoch_metrics(run, [epoch], (), "summary")
    end = end_metrics(record, EPOCHS, "summary")
    keys = [key for key, _, _ in (*epochs, *end)]
    assert len(keys) == len(set(keys)) <= MAX_METRICS
    assert {"train.loss", "seconds", "parameters", "peak_memory_mb"} <= set(keys)
    values = {key: value for key, value, _ in end}
    if shared or tasks == 1:
        assert values["test.mean"] == pytest.approx(1 + (tasks - 1) / 2) == values["val.mean"]
    assert (f"test.{main['t0']}.t0" in values) == (tasks <= 15)
    full = end_metrics(record, EPOCHS, "full")
    assert len(full) > len(end) and {"test.loss.t0"} <= {key for key, _, _ in full}


@pytest.mark.ray
@pytest.mark.slow  # `mlflow models predict` imports everything anew
@pytest.mark.timeout(900)
def test_winners_are_models_of_mlflow(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded by `mlflow.pyfunc` and by `mlflow models predict`, and taken by the registry."""
    import mlflow
    import numpy as np
    import pandas as pd

    from mtlscale.api import run
    from mtlscale.config import load_experiment
    from mtlscale.inference import export, load_model

    experiment, home = load_experiment(experiment_file(methods="[equal]", seeds="[0, 1]")), Home(tmp_path / "home")
    results = run(experiment, home=home)
    (row,) = found_in(home)["row"]
    best = row.data.tags["mtlscale.model_run"]
    assert best in {record.run_id for record in results.records}
    own = load_model(export(home, best, tmp_path / "exported"))
    size = own.description.input.shape[0]
    inputs = np.random.default_rng(0).normal(size=(4, size))
    task = next(iter(own.tasks))
    frame = pd.DataFrame({"input": list(inputs), "task": [task] * 4})
    expected = own.predict(inputs, task)[task]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", home.tracking_uri)
    loaded = mlflow.pyfunc.load_model(row.data.tags["mtlscale.model"])
    if own.suite.inputs != "per_task":
        frame = frame.drop(columns="task")
    found = loaded.predict(frame)
    column = "label" if own.suite.inputs == "per_task" else task
    assert found[column].tolist() == expected.labels.tolist()
    version = mlflow.register_model(row.data.tags["mtlscale.model"], "winner")
    again = mlflow.pyfunc.load_model(f"models:/winner/{version.version}")
    assert again.predict(frame).equals(found)
    given, out = tmp_path / "inputs.json", tmp_path / "out.json"
    given.write_text(f'{{"dataframe_split": {frame.to_json(orient="split", index=False)}}}')
    code = "import sys; from mlflow.cli import cli; sys.argv[0] = 'mlflow'; cli()"
    options = ["--env-manager", "local", "-i", str(given), "-o", str(out), "-t", "json"]
    subprocess.run(
        [sys.executable, "-c", code, "models", "predict", "-m", row.data.tags["mtlscale.model"], *options],
        check=True,
        capture_output=True,
    )
    predictions = pd.DataFrame(json.loads(out.read_text())["predictions"])
    assert predictions[column].tolist() == expected.labels.tolist()
