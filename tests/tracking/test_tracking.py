"""MLflow as teams run it: servers that die and come back, eight writers at once."""

from __future__ import annotations

import importlib.util
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlflow_server
import pytest
from mlflow_server import MlflowServer, postgres
from tracked import EPOCHS, epoch_of, give_database, record_of, runs_of

from mtlscale.config import Experiment, Run, load_plugin
from mtlscale.records import EpochFile, Home, Ledger, PhaseCost, write_atomically
from mtlscale.tracking import Row, Tracker, Writer
from mtlscale.tracking.sync import sync


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
            sorted(m.step for m in client.get_metric_history(run.info.run_id, "train.loss.a")),
            run.data.metrics.get("test.mean", float("nan")),
        )
        for run in found
    }


def until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def begun(uri: str) -> int:
    """The number of runs that MLflow has, ended or not."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("small")
    kind = "tags.`mtlscale.kind` = 'run'"
    return 0 if experiment is None else len(client.search_runs([experiment.experiment_id], kind))


def expected(runs: list[Run]) -> dict[str, tuple[str, str, list[int], float]]:
    return {r.run_id: (r.method, "FINISHED", list(range(1, EPOCHS + 1)), 50.0 + r.seed) for r in runs}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Give a home with an MLflow database whose tables are there."""
    give_database(tmp_path / "home")
    return Home(tmp_path / "home")


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
                until(lambda: begun(server.uri) == 3)
                server.kill()
            record = record_of(run)
            EpochFile(home.run(run.run_id)).take(record.epochs)
            ledger.append(record)
            tracker.finished(run, record, home.run(run.run_id))
        assert tracker.close()
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
    """The next one goes on in them; `sync` removes what is left over."""
    import mlflow

    uri = give_database(tmp_path)
    experiment, home = small(tracking=f"{{uri: '{uri}'}}"), Home(tmp_path / "home")
    runs, client = runs_of(experiment), mlflow.MlflowClient(tracking_uri=uri)
    Tracker(experiment, home).close()
    place = client.get_experiment_by_name("small").experiment_id
    (report,) = client.search_runs([place])

    def begin(run: Run) -> None:
        kind = {"mtlscale.kind": "run", "mtlscale.run_id": run.run_id, "mtlscale.method": run.method}
        kind["mtlscale.dataset"] = run.dataset
        client.create_run(place, tags={"mtlscale.owner": report.info.run_id, **kind})

    begin(runs[0])
    tracker, ledger = Tracker(experiment, home), Ledger(home.ledger("small"))
    for run in runs:
        tracker.started(run)
        tracker.finished(run, record_of(run), home.run(run.run_id))
        ledger.append(record_of(run))
    assert tracker.close() is None
    assert written(uri, "small") == expected(runs)
    adopted = client.search_runs([place], f"tags.`mtlscale.run_id` = '{runs[0].run_id}'")
    assert adopted[0].data.params["balancer.name"] == runs[0].spec["balancer"]["name"]

    begin(runs[1])
    assert sync(experiment, home) == (0, len(runs))
    assert written(uri, "small") == expected(runs)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def test_eight_writers_at_once_lose_nothing(store: str, experiment_file: Callable[..., Path], tmp_path: Path) -> None:
    from mtlscale.config import load_experiment

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
    Tracker(experiments[0], Home(folder / "first")).close()  # one makes the tables
    told: list[str] = []
    trackers = [Tracker(e, Home(folder / e.name), told.append) for e in experiments]
    for run_of_each in zip(*(runs_of(e) for e in experiments), strict=True):
        for tracker, run in zip(trackers, run_of_each, strict=True):
            tracker.started(run)
            for number in range(1, EPOCHS + 1):
                tracker.epoch(run, epoch_of(number))
            tracker.finished(run, record_of(run), folder / "none")
    assert [tracker.close() for tracker in trackers] == [None] * 8
    assert [line for line in told if "still to write" not in line] == []  # which is said where the server is slow
    for experiment in experiments:
        assert written(uri, experiment.name) == expected(runs_of(experiment))


def test_the_epochs_of_all_phases_are_written_one_after_the_other(small: Callable[..., Experiment], home: Home) -> None:
    """Each phase counts its own from one; charts go on."""
    load_plugin(Path(__file__).parents[2] / "docs" / "examples" / "two_phases.py")
    method = "{architecture: {name: searched_sharing, search_epochs: 2}, balancer: equal}"
    experiment = small(methods=f"[{method}]")
    (run,) = runs_of(experiment)
    places = [("search", 1), ("search", 2), ("retrain", 1), ("retrain", 2), ("retrain", 3)]
    epochs = [epoch_of(number).model_copy(update={"phase": phase}) for phase, number in places]
    tracker = Tracker(experiment, home)
    tracker.started(run)
    for epoch in epochs[:3]:
        tracker.epoch(run, epoch)
    tracker.finished(run, record_of(run).model_copy(update={"epochs": epochs}), home.run(run.run_id))
    assert tracker.close() is None
    assert written(home.tracking_uri, "small")[run.run_id][2] == [1, 2, 3, 4, 5]


def test_what_a_search_took_and_found_is_written(small: Callable[..., Experiment], home: Home) -> None:
    """Numbers of traces by task, too; lists and matrices are left to the record."""
    experiment = small(seeds="[0, 1]", tracking="{detail: full}")
    first, second, *_ = runs_of(experiment)
    traces = {
        "tau": 0.5,
        "gates": {"a": 0.25, "b": 0.75},
        "branching": {"a": [0.5, 0.5]},
        "affinity": [[1.0]],
        "x": "y",
    }
    phases = [
        PhaseCost(name="search", phase_id="f00d", epochs=2, steps=4, seconds=12.5),
        PhaseCost(name="groups", phase_id="beef", epochs=2, steps=4, seconds=2.5, reused=True),
    ]
    found = {"tree": [[0, 0], [0, 1]], "tasks": ["a", "b"]}
    tracker = Tracker(experiment, home)
    for run, structure in ((first, found), (second, {"tree": [list(range(5000))]})):
        update = {
            "epochs": [epoch_of(1).model_copy(update={"traces": traces})],
            "phases": phases,
            "structure": structure,
        }
        tracker.started(run)
        tracker.finished(run, record_of(run).model_copy(update=update), home.run(run.run_id))
    assert tracker.close() is None
    shown = everything(home.tracking_uri, "small")
    _, _, tags, latest, *_ = shown[first.run_id]  # type: ignore[misc]
    assert {name: value for name, value in latest.items() if name.startswith(("trace", "phase"))} == {
        "trace.tau": "0.5",
        "trace.gates.a": "0.25",
        "trace.gates.b": "0.75",
        "phase.search.seconds": "12.5",
        "phase.groups.seconds": "2.5",
    }
    assert (tags["mtlscale.phase.search"], tags["mtlscale.phase.groups"]) == ("f00d", "beef, reused")
    assert json.loads(tags["mtlscale.structure"]) == found
    assert "mtlscale.structure" not in shown[second.run_id][2]  # type: ignore[index]  # too long for a tag


def everything(uri: str, name: str) -> dict[str, object]:
    """All that MLflow shows of an experiment's rows, by name, and of its runs, by our run_id; ids and times of MLflow's
    own left out."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.search_runs([client.get_experiment_by_name(name).experiment_id], "tags.`mtlscale.owner` != ''")
    names = {run.info.run_id: run.info.run_name for run in found}
    shown: dict[str, object] = {}
    for run in found:
        info, data = run.info, run.data
        tags = {**data.tags, "mlflow.parentRunId": names.get(data.tags.get("mlflow.parentRunId"), "")}
        del tags["mtlscale.owner"]
        history = {
            key: [(m.step, repr(m.value)) for m in client.get_metric_history(info.run_id, key)] for key in data.metrics
        }
        latest = {key: repr(value) for key, value in data.metrics.items()}
        files = {file.path for file in client.list_artifacts(info.run_id)}
        inputs = [(one.dataset.to_dictionary(), [(tag.key, tag.value) for tag in one.tags]) for one in _inputs(run)]
        key, times = data.tags.get("mtlscale.run_id"), (info.start_time, info.end_time)
        if key is None:
            key, times = f"{data.tags['mtlscale.kind']} {info.run_name}", (0, None)
        fixed = (info.run_name, info.status, info.user_id, info.lifecycle_stage, *times)
        assert key not in shown
        shown[key] = (fixed, data.params, tags, latest, history, files, inputs)
    return shown


def _inputs(run: Any) -> list[Any]:
    return sorted(run.inputs.dataset_inputs, key=lambda one: str(one.dataset.name))


def test_a_run_written_in_one_go_is_stored_as_one_followed_from_its_start(
    small: Callable[..., Experiment], home: Home
) -> None:
    """With numbers that are none; beside a failed run and a trial."""
    experiment = small(seeds="[0, 1]")
    writer = Writer(experiment, home)
    writer.connect()
    whole, late, broken, trial, *_ = runs_of(experiment)
    times = {"started": "2026-01-02T03:04:05+00:00", "finished": "2026-01-02T03:05:05+00:00"}
    for run in (whole, late):
        write_atomically(home.run(run.run_id) / "record.json", b"{}")
    odd = {"a": {"loss": float("nan"), "accuracy": 1.0}, "b": {"loss": float("inf"), "accuracy": -1.0}}
    records = {
        run.run_id: record_of(run).model_copy(update={**times, "metrics": {"test": odd}}) for run in (whole, late)
    }
    failed = record_of(broken, "failed").model_copy(update={"error": "it broke", "metrics": {}, **times})

    writer.write(whole, record=records[whole.run_id])
    writer.write(broken, record=failed)
    writer.write(late, [epoch_of(1), epoch_of(2)])
    writer.write(late, [epoch_of(3)])
    (begun, *_rest) = everything(home.tracking_uri, "small")[late.run_id]
    writer.write(late, record=records[late.run_id])
    tuned = trial.tuned({"training.lr": 0.5})
    writer.trial(tuned, record_of(trial).model_copy(update=times), 3.0)
    row = Row(whole.dataset, whole.method, whole.spec, {"test.mean": 1.5, "delta": -2.0}, 1, 0, 2)
    writer.rows([row])
    writer.rows([replace(row, metrics={"test.mean": 2.5, "delta": -2.0}, finished=2)])
    writer.close("FINISHED")

    stored: dict[str, Any] = everything(home.tracking_uri, "small")
    assert len(stored) == 4 + 2 + 2  # runs, rows, rows of the search
    assert begun[1] == "RUNNING" and abs(begun[4] / 1000 - time.time()) < 120
    of_whole, of_late = stored[whole.run_id], stored[late.run_id]
    assert [of_whole[0][1], stored[broken.run_id][0][1]] == ["FINISHED", "FAILED"]
    assert of_late[3:] == of_whole[3:], "metrics, their histories, files and inputs"
    assert of_whole[3]["test.accuracy.a"] == "1.0" and len(of_whole[4]["train.loss.a"]) == EPOCHS
    assert stored[tuned.run_id][3]["val.score"] == "3.0"
    (summary,) = [content for content in stored.values() if content[3].get("delta") == "-2.0"]
    assert summary[3]["test.mean"] == "2.5" and len(summary[4]["test.mean"]) == 2


def test_a_run_can_be_seen_before_its_first_epoch(small: Callable[..., Experiment], home: Home) -> None:
    experiment = small()
    tracker = Tracker(experiment, home)
    tracker.started(runs_of(experiment)[0])
    until(lambda: begun(home.tracking_uri) == 1)
    assert tracker.close("KILLED", seconds=3600) is None


def test_closing_in_haste_ends_what_was_begun_and_the_rest_goes_on_later(
    small: Callable[..., Experiment], home: Home
) -> None:
    experiment, told = small(), list[str]()
    runs = runs_of(experiment)
    tracker = Tracker(experiment, home, told.append)
    for number, run in enumerate(runs):
        tracker.started(run)
        tracker.epoch(run, epoch_of(1))
        if number == 0:
            tracker.finished(run, record_of(run), home.run(run.run_id))
    until(lambda: begun(home.tracking_uri) == len(runs))
    for run in runs[1:]:
        tracker.epoch(run, epoch_of(2))
    assert tracker.close("KILLED", seconds=3600) is None and told == []  # returns as soon as all is written
    found = written(home.tracking_uri, "small")
    assert {entry[1] for entry in found.values()} == {"FINISHED", "KILLED"}
    assert [found[run.run_id][2] for run in runs[1:]] == [[1, 2]] * (len(runs) - 1)

    again = Tracker(experiment, home, told.append)
    for run in runs[1:]:
        again.epoch(run, epoch_of(5))  # 3 and 4 were over, and MLflow had not heard of them
    until(lambda: {entry[1] for entry in written(home.tracking_uri, "small").values()} == {"FINISHED", "RUNNING"})
    for run in runs[1:]:
        again.finished(run, record_of(run), home.run(run.run_id))
    assert again.close() is None
    assert written(home.tracking_uri, "small") == expected(runs)


def test_a_backlog_is_kept_small_and_told_of(
    small: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that wait are read from their folders again; how many are left is said until all are there."""
    from mtlscale.tracking import tracker as module

    monkeypatch.setattr(module, "QUEUE_LIMIT", 1)
    monkeypatch.setattr(module, "EPOCHS", 3)
    monkeypatch.setattr(module, "PROGRESS_SECONDS", (0.0, 0.0))
    home, experiment, told = Home(tmp_path / "home"), small(seeds="[0, 1, 2]"), list[str]()
    runs = runs_of(experiment)
    tracker = Tracker(experiment, home, told.append)  # takes a second to connect, while all of this happens
    for run in runs:
        record = record_of(run)
        write_atomically(home.run(run.run_id) / "record.json", record.model_dump_json().encode())
        EpochFile(home.run(run.run_id)).take(record.epochs)
        for epoch in record.epochs:
            tracker.epoch(run, epoch)
        assert tracker._waiting_epochs <= 3
        tracker.finished(run, record, home.run(run.run_id))
    assert sum(record is not None for _, record, *_ in tracker._ended) <= 1
    assert tracker.close() is None and tracker.left == 0
    assert told and all(line.endswith("still to write") for line in told)
    assert written(home.tracking_uri, "small") == expected(runs)


def test_a_server_that_hangs_holds_nobody_up(small: Callable[..., Experiment], tmp_path: Path) -> None:
    """It takes the connection and says it is well, and then says nothing."""
    hung = threading.Event()

    class Hangs(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not self.path.endswith("/health"):
                hung.wait(500)
            self.send_response(200)
            self.end_headers()

        do_POST = do_GET

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hangs)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        experiment, told = small(tracking=f"{{uri: 'http://127.0.0.1:{server.server_port}'}}"), list[str]()
        tracker, home = Tracker(experiment, Home(tmp_path / "home"), told.append), Home(tmp_path / "home")
        for run in runs_of(experiment):
            tracker.finished(run, record_of(run), home.run(run.run_id))
        before = time.monotonic()
        assert tracker.close("KILLED", seconds=1.0)
        assert time.monotonic() - before < 120
        assert told == ["MLflow lacks 3 runs; `mtlscale sync` with the same experiment writes what is left"]
    finally:
        hung.set()
        server.shutdown()
