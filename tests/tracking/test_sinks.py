"""TensorBoard and Weights & Biases, offline: what their own readers find in what the sinks have written."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tracked import EPOCHS, epoch_of, record_of, runs_of

from mtlscale.config import Experiment, Run, UserError
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Home
from mtlscale.records.events import Closed, EpochEnded, Event, RunBegun, RunEnded, Sink
from mtlscale.tracking import trackers
from mtlscale.tracking.sinks import SINKS, ScalarSink
from mtlscale.tracking.values import Metric


def experiment(*sinks: str) -> Experiment:
    return Experiment.model_validate(
        {
            "name": "small",
            "datasets": ["digits"],
            "methods": ["equal", "mgda"],
            "seeds": [0, 1],
            "training": {"epochs": EPOCHS},
            "tracking": {"enabled": False, "also": list(sinks)},
        }
    )


def write(home: Home, *sinks: str) -> tuple[list[Run], list[str]]:
    """Let sinks see four runs: two to their end, one only at its end, one cut off after two epochs."""
    told: list[str] = []
    small = experiment(*sinks)
    runs = [run for run in runs_of(small) if run.method in ("equal", "mgda")]
    events: list[Event] = [RunBegun(run) for run in runs]
    for number in range(1, EPOCHS + 1):
        going_on = runs[:2] + (runs[3:] if number <= 2 else [])
        events += [EpochEnded(run.run_id, epoch_of(number)) for run in going_on]
    events += [RunEnded(run.run_id, record_of(run)) for run in runs[:3]]
    tell(Sinks(*trackers(small, home, told.append, list)), *events)
    return runs, told


def tell(sink: Sink, *events: Event) -> None:
    for event in (*events, Closed("FINISHED")):
        sink.take(event)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard's own reader finds."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = accumulators.EventAccumulator(str(folder))
    accumulator.Reload()
    return {
        tag: [(event.step, round(event.value, 4)) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def test_tensorboard_has_every_epoch_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    home = Home(tmp_path)
    runs, told = write(home, "tensorboard")
    assert told == []
    root = tmp_path / "tensorboard" / "small"
    assert {path.name for path in root.iterdir()} == {"equal_digits", "mgda_digits"}
    for run in runs:
        [folder] = root.glob(f"*/seed{run.seed}-{run.run_id}")
        found = scalars(folder)
        steps = 2 if run is runs[3] else EPOCHS
        assert found["train/loss"] == [(number, round(1.5 / number, 4)) for number in range(1, steps + 1)]
        assert ("test/mean" in found) == (run is not runs[3])


def test_a_resumed_run_goes_on_and_shows_no_epoch_twice(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    home = Home(tmp_path)
    runs, _ = write(home, "tensorboard")
    # The second epoch again, from the checkpoint before it.
    epochs = [EpochEnded(runs[3].run_id, epoch_of(number)) for number in range(2, EPOCHS + 1)]
    ended = RunEnded(runs[3].run_id, record_of(runs[3]))
    tell(Sinks(*trackers(experiment("tensorboard"), home, print, list)), RunBegun(runs[3]), *epochs, ended)
    [folder] = (tmp_path / "tensorboard" / "small").glob(f"*/seed*-{runs[3].run_id}")
    assert [step for step, _ in scalars(folder)["train/loss"]] == list(range(1, EPOCHS + 1))


def chunks(log: bytes) -> Iterator[bytes]:
    """The records of a transaction log: a head of 7 bytes, then LevelDB's format, in blocks of 32 KiB."""
    place, record = 7, b""
    while place + 7 <= len(log):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        length, kind = int.from_bytes(log[place + 4 : place + 6], "little"), log[place + 6]
        record += log[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            yield record
            record = b""


@pytest.mark.slow
def test_wandb_has_every_epoch_once_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the files that `wandb sync` uploads later."""
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    runs, told = write(Home(tmp_path), "wandb")
    assert told == []

    def entries() -> dict[str, list[Any]]:
        paths = (tmp_path / "wandb").glob("wandb/offline-run-*/run-*.wandb")
        read = {path: chunks(path.read_bytes()) for path in paths}
        parse = wandb_internal_pb2.Record.FromString
        return {path.stem.removeprefix("run-"): [parse(data) for data in log] for path, log in read.items()}

    until = time.monotonic() + 60  # its own process writes the end
    files = entries()
    while sum(f[-1].WhichOneof("record_type") == "exit" for f in files.values() if f) < len(runs):
        assert time.monotonic() < until, "a file without its end"
        time.sleep(0.2)
        files = entries()

    written: dict[str, list[dict[str, str]]] = {}
    configs: dict[str, set[str]] = {}
    for run_id, records in files.items():
        for record in records:
            if record.WhichOneof("record_type") == "history":
                items = {item.key or ".".join(item.nested_key): item.value_json for item in record.history.item}
                written.setdefault(run_id, []).append(items)
            if record.WhichOneof("record_type") == "run":
                configs[run_id] = {item.key for item in record.run.config.update}
    assert set(written) == {run.run_id for run in runs}
    for run in runs:
        steps = 2 if run is runs[3] else EPOCHS
        losses = [float(items["train.loss"]) for items in written[run.run_id] if "train.loss" in items]
        assert losses == pytest.approx([1.5 / number for number in range(1, steps + 1)])
        assert {"dataset", "method", "training.epochs"} <= configs[run.run_id]


def test_both_are_off_by_default() -> None:
    assert Experiment.model_validate({"name": "x", "datasets": ["digits"], "methods": ["equal"]}).tracking.also == ()


@pytest.mark.parametrize("name", SINKS)
def test_a_missing_package_is_said_before_anything_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=rf"{name} needs the package .*; pip install 'mtlscale\[{name}\]'"):
        trackers(experiment(name), Home(tmp_path), print, list)


class Broken(ScalarSink):
    """A sink whose service has gone."""

    name, package = "broken", "json"

    def begin(self, run: Run, step: int) -> Any:
        raise ConnectionError("nobody answers")

    def log(self, handle: Any, metrics: list[Metric]) -> None: ...

    def end(self, handle: Any, record: Any) -> None: ...


def test_a_sink_that_fails_says_so_once_and_stops_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SINKS, "wandb", Broken)
    _, told = write(Home(tmp_path), "wandb")
    assert told == ["broken gets nothing from here on (ConnectionError: nobody answers); the runs go on"]
