"""MLflow as teams run it: servers that die and come back, eight writers at once."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path

import mlflow_server
import pytest
from mlflow_server import MlflowServer, postgres

from mtlscale.records import Epoch, Home, Ledger, RunRecord
from mtlscale.spec import Experiment, Run, load_plugin
from mtlscale.tracking import Tracker
from mtlscale.tracking.sync import sync

EPOCHS = 30


def record_of(run: Run, status: str = "finished") -> RunRecord:
    """A finished run of two tasks."""
    metrics = {task: {"accuracy": 50.0 + run.seed} for task in ("a", "b")}
    return RunRecord.model_validate(
        {
            **run.model_dump(
                include={"run_id", "experiment", "dataset", "method", "seed", "spec", "fingerprint", "trial"}
            ),
            "run_id": run.run_id,
            "status": status,
            "higher_is_better": {"accuracy": True},
            "main_metrics": {"a": "accuracy", "b": "accuracy"},
            "metrics": {"val": metrics, "test": metrics},
            "epochs": [epoch_of(number) for number in range(1, EPOCHS + 1)],
            "seconds": 1.0,
        }
    )


def epoch_of(number: int) -> Epoch:
    return Epoch(epoch=number, train_loss={"a": 1 / number, "b": 2 / number}, seconds=0.1)


def runs_of(experiment: Experiment) -> list[Run]:
    return list(experiment.runs(dict.fromkeys(experiment.data(), "f")))


def written(uri: str, name: str) -> dict[str, tuple[str, str, list[int], float]]:
    """run_id -> method, MLflow's status, the epochs there are and the test result, of each run there is once."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(name).experiment_id], "tags.`mtlscale.kind` = 'run'")
    ids = [run.data.tags["mtlscale.run_id"] for run in found]
    assert len(ids) == len(set(ids)), "a run was written twice"
    return {
        run.data.tags["mtlscale.run_id"]: (
            run.data.tags["mtlscale.method"],
            run.info.status,
            [m.step for m in client.get_metric_history(run.info.run_id, "train.loss.a")],
            run.data.metrics.get("test.mean", float("nan")),
        )
        for run in found
    }


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.2)


def expected(runs: list[Run]) -> dict[str, tuple[str, str, list[int], float]]:
    return {r.run_id: (r.method, "FINISHED", list(range(1, EPOCHS + 1)), 50.0 + r.seed) for r in runs}


@pytest.mark.slow  # an MLflow server starts three times
def test_a_server_that_dies_in_the_middle_is_caught_up_later(
    small: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs go on, it is said once, and `sync` writes the rest, once however often it is called."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    home, told = Home(tmp_path / "home"), list[str]()
    with MlflowServer(tmp_path / "server", f"sqlite:///{tmp_path / 'server' / 'mlflow.db'}") as server:
        experiment = small(tracking=f"{{uri: '{server.uri}'}}", seeds="[0, 1]")
        runs, ledger = runs_of(experiment), Ledger(home.ledger("small"))
        tracker = Tracker(experiment, home, told.append)
        for index, run in enumerate(runs):
            tracker.started(run)
            for number in range(1, EPOCHS + 1):
                tracker.epoch(run, epoch_of(number))
            if index == 2:  # the third run has begun when the server dies
                until(lambda: len(written(server.uri, "small")) == 3)
                server.kill()
            record = record_of(run)
            ledger.append(record)
            tracker.finished(run, record, home.run(run.run_id))
        assert tracker.close([])
        assert len(told) == 2 and all("mtlscale sync" in line and "\n" not in line for line in told)
        assert "lacks 4 runs" in told[1]

        server.start()
        before = written(server.uri, "small")
        assert [entry[1] for entry in before.values()].count("FINISHED") == 2 and len(before) == 3
        assert sync(experiment, home) == (4, 2)
        assert written(server.uri, "small") == expected(runs)
        assert sync(experiment, home) == (0, 6)
        assert written(server.uri, "small") == expected(runs)

        # On a server that has lost everything, everything is written again.
        server.kill()
        (tmp_path / "server" / "mlflow.db").unlink()
        server.start()
        assert sync(experiment, home) == (6, 0)
        assert written(server.uri, "small") == expected(runs)


def test_runs_that_a_driver_began_as_it_died_are_not_written_twice(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    """It had told MLflow, and not yet its own book: the next one goes on in them, `sync` removes what is left over."""
    import mlflow

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    experiment, home = small(tracking=f"{{uri: '{uri}'}}"), Home(tmp_path / "home")
    runs, client = runs_of(experiment), mlflow.MlflowClient(tracking_uri=uri)
    Tracker(experiment, home).close([])
    parent = json.loads((home.experiment("small") / "mlflow.json").read_text().splitlines()[0])["parent"]
    place = client.get_experiment_by_name("small").experiment_id

    def begin(run: Run) -> None:
        kind = {"mtlscale.kind": "run", "mtlscale.run_id": run.run_id, "mtlscale.method": run.method}
        client.create_run(place, tags={"mlflow.parentRunId": parent, **kind})

    begin(runs[0])
    tracker, ledger = Tracker(experiment, home), Ledger(home.ledger("small"))
    for run in runs:
        tracker.started(run)
        tracker.finished(run, record_of(run), home.run(run.run_id))
        ledger.append(record_of(run))
    assert tracker.close([]) is None
    assert written(uri, "small") == expected(runs)
    adopted = client.search_runs([place], f"tags.`mtlscale.run_id` = '{runs[0].run_id}'")
    assert adopted[0].data.params["balancer.name"] == runs[0].spec["balancer"]["name"]

    begin(runs[1])
    assert sync(experiment, home) == (0, len(runs))
    assert written(uri, "small") == expected(runs)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_eight_writers_at_once_lose_nothing(store: str, experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    from mtlscale.spec import load_experiment

    if store == "sqlite":
        _eight(f"sqlite:///{tmp_path / 'mlflow.db'}", experiment_file, load_experiment, tmp_path)
        return
    if mlflow_server.POSTGRES is None:
        pytest.skip("no PostgreSQL here: apt-get install postgresql")
    if importlib.util.find_spec("psycopg2") is None:
        pytest.skip("no PostgreSQL driver here: pip install psycopg2-binary")
    with postgres(tmp_path / "database") as uri, MlflowServer(tmp_path / "server", uri) as server:
        _eight(server.uri, experiment_file, load_experiment, tmp_path)


def _eight(uri: str, experiment_file: Callable[..., Path], load: Callable[..., Experiment], folder: Path) -> None:
    """Eight experiments, each with its own writer, in one MLflow."""
    experiments = [
        load(experiment_file(name=f"writer{number}", tracking=f"{{uri: '{uri}'}}", seeds="[0, 1]"))
        for number in range(8)
    ]
    Tracker(experiments[0], Home(folder / "first")).close([])  # one makes the tables
    told: list[str] = []
    trackers = [Tracker(e, Home(folder / e.name), told.append) for e in experiments]
    for run_of_each in zip(*(runs_of(e) for e in experiments), strict=True):
        for tracker, run in zip(trackers, run_of_each, strict=True):
            tracker.started(run)
            for number in range(1, EPOCHS + 1):
                tracker.epoch(run, epoch_of(number))
            tracker.finished(run, record_of(run), folder / "none")
    assert [tracker.close([]) for tracker in trackers] == [None] * 8 and told == []
    for experiment in experiments:
        assert written(uri, experiment.name) == expected(runs_of(experiment))


def test_the_epochs_of_all_phases_are_written_one_after_the_other(
    small: Callable[..., Experiment], tmp_path: Path
) -> None:
    """Each phase counts its own from one; charts go on."""
    load_plugin(Path(__file__).parents[2] / "docs" / "examples" / "two_phases.py")
    method = "{architecture: {name: searched_sharing, search_epochs: 2}, balancer: equal}"
    experiment, home = small(methods=f"[{method}]"), Home(tmp_path / "home")
    (run,) = runs_of(experiment)
    places = [("search", 1), ("search", 2), ("retrain", 1), ("retrain", 2), ("retrain", 3)]
    epochs = [epoch_of(number).model_copy(update={"phase": phase}) for phase, number in places]
    tracker = Tracker(experiment, home)
    tracker.started(run)
    for epoch in epochs[:3]:
        tracker.epoch(run, epoch)
    tracker.finished(run, record_of(run).model_copy(update={"epochs": epochs}), home.run(run.run_id))
    assert tracker.close([]) is None
    assert written(home.tracking_uri, "small")[run.run_id][2] == [1, 2, 3, 4, 5]
