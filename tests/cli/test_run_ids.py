"""Ids of runs where people look for them: lists of an experiment's runs, the best seed of a method, mistaken ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from command import mtlscale, refused
from tracked import record_of, runs_of

from mtlscale.cli.commands.runs import _report_end
from mtlscale.cli.output.json_events import JsonEvents
from mtlscale.config import Experiment, load_experiment
from mtlscale.execution.planning.status import write_plan
from mtlscale.records import Home, Ledger, RunRecord, best_run
from mtlscale.records.board import Wanted


@pytest.fixture
def path(experiment_file: Callable[..., Path]) -> Path:
    return experiment_file(seeds="[0, 1]", methods="[stl, equal]", floors="[constant]")


@pytest.fixture
def experiment(path: Path) -> Experiment:
    return load_experiment(path)


@pytest.fixture
def records(experiment: Experiment) -> list[RunRecord]:
    """Seed 1 is the better one on validation."""
    found = []
    for record in map(record_of, runs_of(experiment)):
        val = {task: {**values, "loss": 1.0} for task, values in record.metrics["val"].items()}
        found.append(record.model_copy(update={"metrics": {**record.metrics, "val": val}}))
    return found


@pytest.fixture
def home(tmp_path: Path, experiment: Experiment, records: list[RunRecord]) -> Home:
    home = Home(tmp_path / "home")
    for record in records:
        Ledger(home.ledger("small")).append(record)
    runs = [run for run in runs_of(experiment) if run.method != "equal"]
    write_plan(home, "small", [Wanted.of(run) for run in runs])
    return home


def test_show_lists_the_runs_of_an_experiment(home: Home, path: Path, records: list[RunRecord]) -> None:
    for name in ("small", str(path)):
        done = mtlscale("show", name, "--home", home.root)
        assert done.code == 0 and done.stdout.startswith("small: 6 runs in ") and "Traceback" not in done.stderr
        assert all(record.run_id in done.stdout for record in records)
    found = json.loads(mtlscale("show", "small", "--home", home.root, "--json").stdout)["runs"]
    assert {(row["method"], row["settings"]) for row in found} == {
        ("stl", "now"),
        ("constant", "now"),
        ("equal", "other"),
    }
    assert "--spec: small is an experiment" in refused("show", "small", "--spec", "--home", home.root)


def test_a_mistaken_id_is_told_the_experiments(home: Home) -> None:
    for command in (["show", "zzzz"], ["export", "zzzz", "model"]):
        said = refused(*command, "--home", home.root)
        assert said.startswith("no run zzzz in ") and "it has runs of small: `mtlscale show small` lists" in said


def test_the_seed_that_is_best_on_validation_is_exported(home: Home, records: list[RunRecord], tmp_path: Path) -> None:
    best = next(record for record in records if (record.method, record.seed) == ("stl", 1))
    assert best_run(records, "small", "stl") == best.run_id
    export = ("export", "small", tmp_path / "model", "--home", home.root)
    assert best.run_id in refused(*export, "--method", "stl")  # which has left no model here
    assert "small is an experiment; add --method" in refused(*export)
    assert "--method slt: small has no finished run of it; did you mean stl" in refused(*export, "--method", "slt")
    assert "did you mean uneven" in refused(*export, "--method", "stl", "--dataset", "unevn")


@pytest.mark.parametrize(
    ("statuses", "fails"),
    [
        ({"stl": "diverged", "equal": "diverged", "constant": "finished"}, True),
        ({"stl": "finished", "equal": "diverged", "constant": "finished"}, False),
        ({"stl": "finished", "equal": "failed", "constant": "finished"}, True),
    ],
)
def test_status_1_where_a_run_failed_or_all_diverged(
    statuses: dict[str, str], fails: bool, experiment: Experiment, records: list[RunRecord]
) -> None:
    ended = [record.model_copy(update={"status": statuses[record.method]}) for record in records]
    if not fails:
        return _report_end(JsonEvents(False), experiment, ended, 1.0, {}, "runs")
    with pytest.raises(typer.Exit) as stop:
        _report_end(JsonEvents(False), experiment, ended, 1.0, {}, "runs")
    assert stop.value.exit_code == 1
