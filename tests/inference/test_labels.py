"""Labels that stand in a predicted file are measured, and errors are also in the units of the data."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from command import mtlscale
from exported_runs import Finished, finish

from mtlscale.config import Task, TaskSuite
from mtlscale.inference import export, load_model
from mtlscale.inference.labels import LabelMeter
from mtlscale.inference.predictions import prediction_of
from mtlscale.report import Leaderboard

EXPERIMENT = """
datasets: [{name: table, label: t, source: t.csv, options: {targets: {size: regression, kind: class}}}]
methods: [equal]
floors: []
seeds: [0]
model: {encoder: {name: mlp, hidden: [8]}}
training: {epochs: 2}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Finished, Path]:
    """Return a run on a table whose number `size` is far from standardised, and the table."""
    folder = tmp_path_factory.mktemp("labels")
    rng = np.random.default_rng(0)
    x = rng.normal(size=120)
    rows = [(f"{value:.4f}", f"{1000 + 400 * value:.2f}", "uv"[int(value > 0)]) for value in x]
    with (folder / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("x1", "size", "kind"), *rows])
    (folder / "t.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return finish(folder / "home", folder / "t.yaml", folder / "t.csv"), folder / "t.csv"


def test_labels_in_the_file_are_measured_in_both_units(run: tuple[Finished, Path], tmp_path: Path) -> None:
    finished, table = run
    folder = export(finished.home, finished.run_id, tmp_path / "model")
    done = mtlscale("predict", folder, table, "--output", str(tmp_path / "p.csv"))
    assert done.code == 0, done.stderr

    frame, answers = pd.read_csv(table), pd.read_csv(tmp_path / "p.csv")
    rmse = float(np.sqrt(((frame["size"] - answers["size"]) ** 2).mean()))
    accuracy = 100 * float((frame["kind"] == answers["kind"]).mean())
    lines = [line.split() for line in done.stderr.splitlines()]
    in_units = next(line for line in lines if line[:2] == ["size", "rmse,"])
    assert float(in_units[-2]) == pytest.approx(rmse, rel=1e-4) and rmse > 10
    deviation = finished.record.deviations["size"]
    assert 200 < deviation < 700
    scaled = next(line for line in lines if line[:2] == ["size", "rmse"])
    assert float(scaled[-2]) == pytest.approx(rmse / deviation, rel=1e-4)
    of_kind = next(line for line in lines if line[:2] == ["kind", "accuracy"])
    assert (of_kind[2], float(of_kind[3])) == ("120", pytest.approx(accuracy, rel=1e-4))
    assert f"{finished.record.metrics['test']['size']['rmse'] * deviation:.6g}" in (folder / "README.md").read_text()


def test_a_file_without_labels_has_no_measures(run: tuple[Finished, Path], tmp_path: Path) -> None:
    finished, table = run
    folder = export(finished.home, finished.run_id, tmp_path / "model")
    pd.read_csv(table)[["x1"]].to_csv(tmp_path / "x.csv", index=False)
    done = mtlscale("predict", folder, tmp_path / "x.csv")
    assert done.code == 0 and "rmse" not in done.stderr and "120 predicted" in done.stderr

    frame = pd.read_csv(table)
    frame["size"] = frame["size"].where(frame.index < 5)
    frame["kind"] = None
    frame.to_csv(tmp_path / "some.csv", index=False)
    done = mtlscale("predict", folder, tmp_path / "some.csv")
    assert done.code == 0, done.stderr
    of_size = [line.split() for line in done.stderr.splitlines() if line.split()[:2] == ["size", "rmse"]]
    assert [line[2] for line in of_size] == ["5"]
    assert "accuracy" not in done.stderr


def test_tables_have_a_column_in_units(run: tuple[Finished, Path]) -> None:
    record = run[0].record
    board = Leaderboard.from_records([record])
    rows = board.to_pandas()
    expected = record.metrics["test"]["size"]["rmse"] * record.deviations["size"]
    assert rows["size.rmse.in_units"].tolist() == [pytest.approx(expected)]
    assert "size rmse in units" in board.to_markdown() and "kind accuracy in units" not in board.to_markdown()

    old = record.model_copy(update={"deviations": {}})
    assert "in units" not in Leaderboard.from_records([old]).to_markdown()


def test_predictions_are_frames(run: tuple[Finished, Path], tmp_path: Path) -> None:
    finished, table = run
    model = load_model(export(finished.home, finished.run_id, tmp_path / "model"))
    predictions = model.predict(pd.read_csv(table)[["x1"]])
    frame = predictions["kind"].to_pandas(probabilities=True)
    assert list(frame) == ["kind", "kind.score", "kind.p"] and len(frame) == 120
    assert frame["kind"].tolist() == predictions["kind"].labels.tolist()
    assert list(predictions["size"].to_pandas()) == ["size"]


def test_tasks_in_groups_and_maps_are_not_measured_by_a_column_of_labels() -> None:
    """A metric in groups wants each row's group, and a map has no cell: what else a file has is measured as ever."""
    tasks = (
        Task(name="plain", loss="cross_entropy", outputs=2, metrics=("accuracy",), classes=("no", "yes")),
        Task(name="clicked", loss="bce", outputs=1, metrics=("gauroc",), classes=("no", "yes"), group=0),
        Task(name="map", loss="cross_entropy", outputs=2, metrics=("accuracy",), classes=("no", "yes")),
    )
    suite = TaskSuite(name="t", tasks=tasks, inputs="shared", input_kind="vector", input_shape=(1,))
    table = pa.table({task.name: ["yes", "no", "yes"] for task in tasks})
    scores = {
        "plain": torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]),
        "clicked": torch.tensor([[1.0], [-1.0], [1.0]]),
        "map": torch.zeros(3, 2, 4, 4),
    }
    meter = LabelMeter(suite)
    for task in tasks:
        meter.add(task, table, [0, 1, 2], prediction_of(suite, task, scores[task.name]))
    assert meter.compute() == {"plain": {"accuracy": pytest.approx(200 / 3)}}
    assert meter.counts == {"plain": 3}
