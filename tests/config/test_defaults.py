"""Defaults beside an experiment file, or of a machine, count where the file says nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mtlscale.config import UserError, load_experiment

File = Callable[..., Path]


@pytest.fixture(autouse=True)
def none_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MTLSCALE_DEFAULTS", raising=False)


def test_the_file_has_the_last_word_key_by_key(experiment_file: File) -> None:
    file = experiment_file(training="{epochs: 3}")
    file.with_name("defaults.yaml").write_text(
        "training: {epochs: 9, lr: 0.5}\ntracking: {uri: 'http://mlflow:5000'}\nresources: {workers: 2}\n"
    )
    experiment = load_experiment(file)
    assert (experiment.training.epochs, experiment.training.lr) == (3, 0.5)
    assert (experiment.tracking.uri, experiment.resources.workers) == ("http://mlflow:5000", 2)
    assert load_experiment(file, ("training.lr=0.1",)).training.lr == 0.1


def test_run_ids_do_not_depend_on_where_a_setting_is_written(experiment_file: File, tmp_path: Path) -> None:
    def ids(file: Path) -> list[str]:
        experiment = load_experiment(file)
        return [run.run_id for run in experiment.runs(dict.fromkeys(experiment.data(), "f00d"))]

    whole = experiment_file(training="{epochs: 3, lr: 0.5}", floors="[]")
    written = ids(whole)
    part = experiment_file(training="{epochs: 3}")
    part.write_text("".join(line for line in part.read_text().splitlines(True) if not line.startswith("floors")))
    part.with_name("defaults.yaml").write_text("training: {lr: 0.5}\nfloors: []\n")
    assert ids(part) == written


def test_a_variable_names_them_and_comes_first(
    experiment_file: File, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = experiment_file(training="{epochs: 3}")
    file.with_name("defaults.yaml").write_text("training: {lr: 0.5}\n")
    (tmp_path / "cluster.yaml").write_text("training: {lr: 0.25}\n")
    monkeypatch.setenv("MTLSCALE_DEFAULTS", str(tmp_path / "cluster.yaml"))
    assert load_experiment(file).training.lr == 0.25
    monkeypatch.setenv("MTLSCALE_DEFAULTS", str(tmp_path / "nowhere.yaml"))
    with pytest.raises(UserError, match=r"\$MTLSCALE_DEFAULTS .*nowhere.yaml does not exist"):
        load_experiment(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a]\n", r"defaults.yaml: defaults are a mapping"),
        ("methods: [stl]\n", r"defaults.yaml: methods belongs into the experiment file"),
        ("resources:\n  workers: many\n", r"defaults.yaml:2: resources.workers: should be an integer"),
        ("tracing: {}\n", r"defaults.yaml:1: unknown key tracing: did you mean"),
    ],
)
def test_mistakes_in_them_are_named(text: str, message: str, experiment_file: File) -> None:
    file = experiment_file()
    file.with_name("defaults.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_experiment(file)
