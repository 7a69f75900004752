"""Every experiment of docs/examples runs, on small settings, and each of its methods does something of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mtlscale.config import Experiment, load_experiment
from mtlscale.data import PreparedData, load_prepared
from mtlscale.execution.preparing.prepare import prepare
from mtlscale.records import RunRecord
from mtlscale.training import train

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
FLOORS = ["constant", "linear"]
OF_TABLES = ["forest", "boosting"]
METHODS = {
    "mine": ["stl", "equal", "running_mean", "small_features"],
    "own_architecture": ["stl", "equal", "adapters", "adapters+mgda"],
    "own_function": ["stl", "equal", "inverse_loss", "mild", "shortest"],
    "own_gramian": ["stl", "equal", "mgda", "inverse_norm"],
    "own_wine": ["stl", "equal", "cagrad"],
    "own_encoder": ["stl", "equal", "deeper"],
    "own_images": ["stl", "equal", "cagrad"],
    "own_method": ["stl", "equal", "getmtl", "running_mean", "half"],
    "own_metric": ["stl", "equal"],
    "own_recipe": ["stl", "equal", "reptile", "slow"],
    "own_report": ["stl", "equal"],
    "own_objective": ["stl", "equal", "small_features", "mgda+small_features"],
    "own_table": ["stl", "equal", "cagrad"],
    "own_texts": ["stl", "equal", "cagrad"],
    "small": ["stl", "equal"],
    "ten_minutes": ["stl", "equal", "mgda", "harder_first"],
}
ELSEWHERE = {"bilevel", "tuned"}  # tests/test_docs.py, tests/test_readme.py


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The examples, and the files that a program among them writes."""
    folder = tmp_path_factory.mktemp("examples")
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    subprocess.run([sys.executable, folder / "write_files.py", folder], check=True)
    return folder


def prepared(experiment: Experiment, folder: Path) -> dict[str, PreparedData]:
    found = {}
    for label, (dataset, _) in experiment.data().items():
        source = folder / (dataset.source or "") if dataset.name in ("table", "text") else None
        found[label] = load_prepared(prepare(dataset.name, dataset.options, source, folder / "home"))
    return found


def run(name: str, folder: Path, *settings: str) -> list[RunRecord]:
    experiment = load_experiment(folder / f"{name}.yaml", ("training.epochs=1", "seeds=[0]", *settings))
    data = prepared(experiment, folder)
    runs = experiment.runs({label: one.manifest.fingerprint for label, one in data.items()})
    return [train(run, data[run.data]) for run in runs]


@pytest.mark.parametrize("name", METHODS)
def test_an_example_runs(name: str, folder: Path) -> None:
    records = run(name, folder, "training.steps_per_epoch=4")
    for dataset in {record.dataset for record in records}:
        of = [record for record in records if record.dataset == dataset]
        floors = [*FLOORS, *(OF_TABLES if name == "own_table" else ())]
        assert [record.method for record in of] == [*METHODS[name], *floors]
        assert {record.status for record in of} == {"finished"}, [record.error for record in of]
        # What a recipe does at an epoch's end shows in the scores, what happens before in the losses, too.
        told = [str((record.epochs[0].train_loss, record.last)) for record in of[: len(METHODS[name])]]
        assert len(set(told)) == len(told)


def test_none_is_left_out() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == METHODS.keys() | ELSEWHERE


def test_the_metric_of_ones_own_is_measured(folder: Path) -> None:
    for record in run("own_metric", folder):
        found = record.metrics["test"]["digit0"]
        assert 50 <= found["balanced_accuracy"] <= 100 and found["balanced_accuracy"] != found["accuracy"]
