"""Drivers that start at once on a new home: MLflow's tables are made once, and every driver finds them."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from mtlscale.config import Experiment
from mtlscale.records import Home
from mtlscale.tracking.reader import experiments
from mtlscale.tracking.writer import Writer

NEW_HOMES = 20


def _connect(experiment: Experiment, home: Home, start: Barrier, outcomes: SimpleQueue[str]) -> None:
    start.wait()
    try:
        writer = Writer(experiment, home)
        writer.connect()
        writer.close("FINISHED")
        outcomes.put("")
    except BaseException as error:
        outcomes.put(f"{type(error).__name__}: {error}")
        raise


@pytest.mark.slow
def test_two_drivers_in_one_second_both_log(small: Callable[..., Experiment], tmp_path: Path) -> None:
    import mlflow.store.tracking.sqlalchemy_store  # noqa: F401 - before the fork, which then costs nothing
    from mlflow import MlflowClient

    fork = multiprocessing.get_context("fork")
    names = ("first", "second")
    specs = [small(name=name) for name in names]
    for number in range(NEW_HOMES):
        home, start, outcomes = Home(tmp_path / str(number)), fork.Barrier(2), fork.SimpleQueue()
        drivers = [fork.Process(target=_connect, args=(spec, home, start, outcomes)) for spec in specs]
        for driver in drivers:
            driver.start()
        assert [outcomes.get() for _ in drivers] == ["", ""]
        for driver in drivers:
            driver.join(60)
        assert set(experiments(home.tracking_uri)) >= set(names)
        client = MlflowClient(home.tracking_uri)
        ids = [client.get_experiment_by_name(name).experiment_id for name in names]
        assert len({run.data.tags["mtlscale.home"] for run in client.search_runs(ids)}) == 1


def test_a_home_that_cannot_be_locked_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock
    from tracked import give_database

    def refuse(self: FileLock) -> None:
        raise PermissionError(13, "read-only", self.lock_file)

    uri = give_database(tmp_path)
    monkeypatch.setattr(FileLock, "acquire", refuse)
    assert experiments(uri) == []
