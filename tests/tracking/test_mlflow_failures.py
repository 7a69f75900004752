"""What MLflow refuses, loses or never got: names, deleted runs, moved homes, passwords, missing drivers."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow_server
import pytest
from mlflow_server import MlflowServer, postgres
from tracked import give_database, record_of, runs_of

from mtlscale.config import Experiment, Run, UserError
from mtlscale.records import Epoch, Home, Ledger
from mtlscale.tracking import Tracker, check_uri, lacking, read_records
from mtlscale.tracking.calls import log, sound_name
from mtlscale.tracking.service import with_driver
from mtlscale.tracking.sync import sync

NAMES = [
    "Preis (€)",
    "a/b [%]",
    "ok?",
    "温度",
    "سعر",
    "цена, руб.",
    "😀",
    "..",
    "a//b",
    " edge ",
    "x" * 6000,
    "x" * 5999 + "y",
    "nul\0",
    "line\nend",
]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    give_database(tmp_path / "home")
    return Home(tmp_path / "home")


def client_at(uri: str) -> Any:
    import mlflow

    return mlflow.MlflowClient(tracking_uri=uri)


def found_runs(uri: str, kind: str = "run") -> list[Any]:
    client = client_at(uri)
    place = client.get_experiment_by_name("small").experiment_id
    return list(client.search_runs([place], f"tags.`mtlscale.kind` = '{kind}'"))


def write_all(experiment: Experiment, home: Home, told: list[str], *, names: bool = False) -> None:
    """Have a driver write all runs to the ledger and to MLflow; `told` gets what it says, but not how slow it is."""

    def tell(text: str) -> None:
        told.extend([] if text.endswith("still to write") else [text])

    ledger, tracker = Ledger(home.ledger("small")), Tracker(experiment, home, tell)
    for run in runs_of(experiment):
        if names:
            settings = {**run.spec, "dataset": {"targets": dict.fromkeys(NAMES, "v" * 6000)}}
            run = Run.model_validate({**run.model_dump(), "spec": settings})
        record = record_of(run)
        if names:
            values = dict.fromkeys(NAMES, 0.5)
            record = record.model_copy(
                update={
                    "metrics": {split: {name: {"accuracy": 0.5} for name in NAMES} for split in ("val", "test")},
                    "main_metrics": dict.fromkeys(NAMES, "accuracy"),
                    "epochs": [Epoch(epoch=1, train_loss=values, weights=values, seconds=0.1)],
                }
            )
        ledger.append(record)
        tracker.finished(run, record, home.run(run.run_id))
    tracker.close()


def test_names_stay_unlike_and_valid() -> None:
    from mlflow.utils.validation import _validate_metric_name, _validate_param_name, _validate_tag_name

    sound = [sound_name(name) for name in {*NAMES, *map(sound_name, NAMES)}]
    assert len(set(sound)) == len(sound)
    for name in sound:
        for validate in (_validate_metric_name, _validate_param_name, _validate_tag_name):
            validate(name)
        assert len(name) <= 250
    assert [sound_name(name) for name in ("training.lr", "test.rmse.温度", "a b:c")] == [
        "training.lr",
        "test.rmse.温度",
        "a b:c",
    ]


@pytest.fixture(params=["sqlite", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("postgresql", "server"))])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield give_database(tmp_path / "store")
    elif request.param == "server":
        with MlflowServer(tmp_path / "server", f"sqlite:///{tmp_path / 'mlflow.db'}") as server:
            yield server.uri
    else:
        if mlflow_server.POSTGRES is None or importlib.util.find_spec("psycopg2") is None:
            pytest.skip("no PostgreSQL")
        with postgres(tmp_path / "pg") as uri:
            yield uri


def test_names_of_every_alphabet_come_to_mlflow(small: Callable[..., Experiment], tmp_path: Path, store: str) -> None:
    experiment = small(tracking=f"{{uri: '{store}', detail: full}}", methods="[equal]")
    home, told = Home(tmp_path / "home"), list[str]()
    write_all(experiment, home, told, names=True)
    assert told == []

    (run,) = found_runs(store)
    assert run.info.status == "FINISHED"
    for name in NAMES:
        key = sound_name(f"test.accuracy.{name}")
        assert run.data.metrics[key] == 0.5
        if key != f"test.accuracy.{name}" and "\0" not in name and len(name) < 5000:
            assert run.data.tags[f"mtlscale.name.{key}"] == f"test.accuracy.{name}"
    assert sync(experiment, home) == (0, 1)


@pytest.mark.parametrize("what", ["all", "experiment", "row", "run"])
def test_what_was_deleted_in_mlflow_is_made_again(small: Callable[..., Experiment], home: Home, what: str) -> None:
    experiment, told = small(), list[str]()
    write_all(experiment, home, told)
    uri, client = home.tracking_uri, client_at(home.tracking_uri)
    place = client.get_experiment_by_name("small").experiment_id
    if what == "all":
        client.delete_experiment(place)
    else:
        (deleted, *_) = found_runs(uri, what)
        client.delete_run(deleted.info.run_id)

    assert sync(experiment, home)[0] == (1 if what == "run" else 0)
    assert len(found_runs(uri)) == len(runs_of(experiment)) and len(found_runs(uri, "experiment")) == 1
    write_all(experiment, home, told)
    assert told == [] and len(found_runs(uri)) == len(runs_of(experiment))


def test_a_run_deleted_while_it_goes_on_is_made_again(small: Callable[..., Experiment], home: Home) -> None:
    experiment, told = small(methods="[equal]"), list[str]()
    (run,) = runs_of(experiment)
    write_all(experiment, home, told)
    (written,) = found_runs(home.tracking_uri)
    client_at(home.tracking_uri).delete_run(written.info.run_id)
    tracker = Tracker(experiment, home, told.append)
    tracker.started(run)  # it is tried again
    tracker.finished(run, record_of(run), home.run(run.run_id))
    tracker.close()
    assert told == [] and [entry.info.status for entry in found_runs(home.tracking_uri)] == ["FINISHED"]


def test_a_command_makes_good_what_earlier_ones_left_out(small: Callable[..., Experiment], home: Home) -> None:
    """A driver was killed after the ledger had a run: MLflow has it RUNNING, or not at all."""
    experiment, told = small(), list[str]()
    first, second, third = runs_of(experiment)
    tracker, ledger = Tracker(experiment, home, told.append), Ledger(home.ledger("small"))
    tracker.started(first)
    for run in (first, second):
        ledger.append(record_of(run))
    tracker.close("KILLED", seconds=30.0)
    assert lacking(experiment, home) == 2

    tracker = Tracker(experiment, home, told.append)
    ledger.append(record_of(third))
    tracker.finished(third, record_of(third), home.run(third.run_id))
    assert tracker.close() is None and told == []
    found = {run.data.tags["mtlscale.run_id"]: run.info.status for run in found_runs(home.tracking_uri)}
    assert found == dict.fromkeys((first.run_id, second.run_id, third.run_id), "FINISHED")
    assert lacking(experiment, home) == 0


def test_mlflow_that_fails_for_a_while_is_made_good_at_the_end(
    small: Callable[..., Experiment], home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = iter([OSError("away")])

    def away_once(*arguments: Any, **named: Any) -> None:
        if error := next(failures, None):
            raise error
        log(*arguments, **named)

    monkeypatch.setattr("mtlscale.tracking.writer.log", away_once)
    experiment, told = small(), list[str]()
    write_all(experiment, home, told)
    assert len(told) == 1 and "behind" in told[0]
    assert [run.info.status for run in found_runs(home.tracking_uri)] == ["FINISHED"] * 3
    assert lacking(experiment, home) == 0


def test_a_home_that_was_moved_keeps_its_files_with_it(small: Callable[..., Experiment], tmp_path: Path) -> None:
    from mlflow.tracking._tracking_service import utils

    give_database(tmp_path / "old")
    experiment, told = small(), list[str]()
    write_all(experiment, Home(tmp_path / "old"), told)
    shutil.move(tmp_path / "old", tmp_path / "new")
    utils._artifact_repos_cache.clear()  # as another process has it
    home = Home(tmp_path / "new")
    write_all(experiment, home, told)
    assert told == [] and list(tmp_path.glob("old/**/*")) == []
    assert len(read_records(home.tracking_uri, "small")) == 3
    client = client_at(home.tracking_uri)
    for run in found_runs(home.tracking_uri):
        assert [file.path for file in client.list_artifacts(run.info.run_id)] == ["record.json"]


def test_two_homes_with_one_experiment_stay_apart(small: Callable[..., Experiment], tmp_path: Path) -> None:
    """Each has its report, its rows and all of its runs in the MLflow that they share."""
    uri = give_database(tmp_path / "store")
    experiment, homes = small(tracking=f"{{uri: '{uri}'}}"), [Home(tmp_path / "one"), Home(tmp_path / "two")]
    killed = Tracker(experiment, homes[0])
    killed.started(runs_of(experiment)[0])
    killed.close("KILLED", seconds=60.0)
    for home in homes:
        write_all(experiment, home, [])
    assert [sync(experiment, home) for home in homes] == [(0, 3), (0, 3)]

    reports = {run.data.tags["mtlscale.home"]: run.info.run_id for run in found_runs(uri, "experiment")}
    assert sorted(reports) == sorted((home.root / "mlflow.id").read_text() for home in homes)
    for kind in ("row", "run"):
        owners = [run.data.tags["mtlscale.owner"] for run in found_runs(uri, kind)]
        assert sorted(owners) == sorted([*reports.values()] * 3), kind
    assert {run.info.status for run in found_runs(uri)} == {"FINISHED"}


def test_a_trial_in_part_is_removed_and_one_tried_again_replaced(small: Callable[..., Experiment], home: Home) -> None:
    experiment = small(methods="[equal]")
    (run,) = runs_of(experiment)
    trials = [run.tuned({"training.lr": lr}) for lr in (0.25, 0.5)]
    tracker = Tracker(experiment, home)
    tracker.trial(trials[0], record_of(trials[0], "failed"), None)
    tracker.close()

    client = client_at(home.tracking_uri)
    place = client.get_experiment_by_name("small").experiment_id
    (failed,) = client.search_runs([place], "tags.`mtlscale.kind` = 'trial'")
    tags = {**failed.data.tags, "mtlscale.run_id": trials[1].run_id}
    client.create_run(place, tags=tags)  # as its driver is killed

    tracker = Tracker(experiment, home)
    tracker.trial(trials[0], record_of(trials[0]), 2.0)
    tracker.close()
    (again,) = found_runs(home.tracking_uri, "trial")
    assert (again.info.status, again.data.metrics["val.score"]) == ("FINISHED", 2.0)
    assert again.data.tags["mlflow.parentRunId"] == failed.data.tags["mlflow.parentRunId"]


def test_whether_runs_are_missing_is_known_without_mlflow(small: Callable[..., Experiment], home: Home) -> None:
    """Also in a home that was moved; another MLflow has nothing yet."""
    experiment = small()
    write_all(experiment, home, [])
    moved = Home(home.root.with_name("moved"))
    home.root.rename(moved.root)
    assert lacking(experiment, moved) == 0
    other = small(tracking="{uri: 'http://127.0.0.1:1'}")
    assert lacking(other, moved) == 3
    Ledger(moved.ledger("small")).append(record_of(runs_of(experiment)[0], "failed"))
    assert lacking(experiment, moved) == 1
    moved.ledger("small").unlink()
    Ledger(moved.ledger("small")).append(record_of(runs_of(experiment)[0], "failed"))
    assert lacking(experiment, moved) == 1  # of a ledger written anew

    code = "import sys, mtlscale.tracking.mark; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_long_description_is_cut(small: Callable[..., Experiment], home: Home) -> None:
    experiment, told = small(description="'" + "long " * 5000 + "'"), list[str]()
    write_all(experiment, home, told)
    assert told == [] and sync(experiment, home) == (0, 3)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("postgresql+nowhere://me:geheim@127.0.0.1:1/x", "is no address of a database"),
        ("postgresql+asyncpg://me:geheim@127.0.0.1:1/x", "needs the Python package asyncpg; pip install asyncpg"),
        ("mysql+pymysql://me:geheim@127.0.0.1:1/x", "needs the Python package pymysql; pip install pymysql"),
        ("postgresql://me:geheim@127.0.0.1:1/x", "no MLflow answers at postgresql://me:***@127.0.0.1:1/x"),
        ("http://me:geheim@127.0.0.1:1", "no MLflow answers at http://me:***@127.0.0.1:1"),
        ("ftp://me:geheim@127.0.0.1:1", "unknown scheme 'ftp'"),
    ],
)
def test_an_address_that_does_not_answer_is_one_line(uri: str, says: str) -> None:
    with pytest.raises(UserError) as refused:
        check_uri(uri)
    assert says in str(refused.value) and "geheim" not in str(refused.value) and "\n" not in str(refused.value)


def test_a_postgresql_address_takes_the_driver_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from mtlscale.tracking import service

    uri = "postgresql://me:geheim@db/x"
    monkeypatch.setattr(service, "find_spec", {"psycopg2": object(), "psycopg": None}.get)
    assert with_driver(uri) == "postgresql+psycopg2://me:geheim@db/x"
    monkeypatch.setattr(service, "find_spec", {"psycopg2": object(), "psycopg": object()}.get)
    assert with_driver(uri) == uri


def test_no_password_lies_in_a_home(
    small: Callable[..., Experiment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite has no passwords, but takes any parameter: none of its address is written as it is."""
    uri = f"{give_database(tmp_path / 'store')}?password=geheim"
    monkeypatch.setattr("mtlscale.tracking.service.with_driver", lambda uri: uri.partition("?")[0])
    monkeypatch.setattr("mtlscale.tracking.service.database_file", lambda uri: None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)  # honoured where the file names none
    experiment, home = small(), Home(tmp_path / "home")
    write_all(experiment, home, [])
    write_all(small(tracking=f"{{uri: '{uri}'}}"), home, [])
    assert len(found_runs(uri.partition("?")[0])) == 3
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept = [path for path in files if b"geheim" in path.read_bytes() and path.suffix != ".yaml"]
    assert files and kept == []
