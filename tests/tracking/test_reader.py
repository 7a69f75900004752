"""The leaderboard from an MLflow alone."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mlflow_server import MlflowServer
from tracked import give_database, record_of, runs_of

from mtlscale.config import Experiment, UserError
from mtlscale.records import EpochFile, Home, Ledger, RunRecord, write_atomically
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.tracking import Tracker, epoch_reader, experiments, read_experiment, read_records
from mtlscale.tracking.sync import sync


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    folder = tmp_path_factory.mktemp("server")
    with MlflowServer(folder, give_database(folder)) as started:
        yield started


def ledger_of(experiment: Experiment, home: Home) -> list[RunRecord]:
    """Runs written to the ledger, the run folders and MLflow, last ones first; one failed without leaving a record."""
    runs, ledger = runs_of(experiment), Ledger(home.ledger(experiment.name))
    tracker, records = Tracker(experiment, home), []
    for number, run in enumerate(reversed(runs)):
        metrics = {task: {"accuracy": 50.1 + number / 7 + run.seed / 3} for task in ("a", "b")}
        record = record_of(run).model_copy(
            update={
                "metrics": {"val": metrics, "test": metrics},
                "counters": {f"count{number}": number},
                "finished": f"2026-01-02T03:04:{number:02}+00:00",
            }
        )
        if number == 0:
            record = record.model_copy(update={"status": "failed", "error": "it broke", "metrics": {}, "epochs": []})
        else:  # as another experiment left it, under labels of its own
            left = record.model_copy(update={"experiment": "other", "method": "another"})
            EpochFile(home.run(run.run_id)).take(left.epochs)
            write_atomically(home.run(run.run_id) / "record.json", left.model_dump_json().encode())
        ledger.append(record)
        tracker.finished(run, record, home.run(run.run_id))
        records.append(record.model_copy(update={"epochs": []}))
    assert tracker.close() is None
    return records[::-1]


@pytest.mark.parametrize("store", ["sqlite", "server"])
def test_the_leaderboard_is_that_of_the_ledger(
    store: str, small: Callable[..., Experiment], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    import mlflow

    # The server is asked for where it is wanted: no other test of this file waits for it.
    uri = request.getfixturevalue("server").uri if store == "server" else give_database(tmp_path / "home")
    home = Home(tmp_path / "home")
    experiment = small(tracking=f"{{uri: '{uri}'}}", seeds="[0, 1]")
    expected = ledger_of(experiment, home)
    mlflow.MlflowClient(tracking_uri=uri).create_experiment("theirs")
    told: list[str] = []
    found = read_records(uri, tell=told.append)
    assert found == expected
    assert len(told) == 1 and "theirs" in told[0]
    epochs, last = epoch_reader(uri, "small"), expected[0].run_id
    assert epochs(last) == home.epochs(last) != [] and epochs("none") == []
    assert Leaderboard.from_records(found).to_csv() == Leaderboard.from_records(expected).to_csv()
    assert experiments(uri) == ["small"]
    assert read_records(uri, "small", tell=told.append) == expected and len(told) == 1
    one = expected[-1]
    chosen = read_records(uri, "small", dataset=one.dataset, method=one.method, seed=one.seed)
    assert chosen == [one]
    assert read_records(uri, method=one.method, seed=0) == [
        record for record in expected if record.method == one.method and record.seed == 0
    ]
    settings = read_experiment(uri, "small")
    assert settings is not None and settings.methods == experiment.methods
    with pytest.raises(UserError, match=r"'theirs' at .* was not written by mtlscale; choose one of: small"):
        read_records(uri, "theirs")
    with pytest.raises(UserError, match="no experiment 'none'"):
        read_records(uri, "none")
    # A run whose file was removed is left out, and that is said.
    client = mlflow.MlflowClient(tracking_uri=uri)
    place = client.get_experiment_by_name("small").experiment_id
    (run,) = client.search_runs([place], f"tags.`mtlscale.run_id` = '{one.run_id}'")
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(run.info.artifact_uri, tracking_uri=uri).delete_artifacts("record.json")
    assert read_records(uri, "small", tell=told.append) == expected[:-1]
    assert told[-1] == f"{uri}: 1 run without a readable record.json left out"


def test_a_home_that_was_moved_is_read_where_it_is(small: Callable[..., Experiment], tmp_path: Path) -> None:
    give_database(tmp_path / "home")
    home, experiment = Home(tmp_path / "home"), small()
    expected = ledger_of(experiment, home)
    assert sync(experiment, home) == (0, len(expected))
    home.root.rename(tmp_path / "moved")
    assert read_records(f"sqlite:///{tmp_path / 'moved' / 'mlflow.db'}") == expected


def test_what_cannot_be_read_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"^no MLflow answers at http://127.0.0.1:1 \(connection refused\); start it or "
    ):
        read_records("http://127.0.0.1:1")
    with pytest.raises(UserError, match=r"there is no MLflow database .*none.db; name one that is there"):
        experiments(f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("no database " * 100)
    with pytest.raises(UserError, match=r"cannot be read: .*not a database"):
        experiments(f"sqlite:///{tmp_path / 'text.db'}")

    give_database(tmp_path / "old")
    with contextlib.closing(sqlite3.connect(tmp_path / "old" / "mlflow.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")  # MLflow 1.0's
    with pytest.raises(UserError, match=r"cannot be read: .*schema.*; `mlflow db upgrade` mends it$"):
        experiments(f"sqlite:///{tmp_path / 'old' / 'mlflow.db'}")


def test_a_server_of_another_version_is_named() -> None:
    class Old(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in ("/health", "/version") else 404)
            self.end_headers()
            self.wfile.write(b"2.9.1" if self.path == "/version" else b"")

        def do_POST(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server, told = ThreadingHTTPServer(("127.0.0.1", 0), Old), list[str]()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_port}"
    try:
        with pytest.raises(UserError, match=f"MLflow at {uri} cannot be read"):
            read_records(uri, tell=told.append)
    finally:
        server.shutdown()
    assert len(told) == 1 and "version 2.9.1" in told[0] and "\n" not in told[0]
