"""Two methods with the same spec are one run shown under both labels, from the plan to the leaderboard of a home."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from mtlscale.cli import app
from mtlscale.records import Home, Ledger

METHODS = "[stl, equal, {name: equal, label: twin}]"
SEARCH = "{{budget: 3, space: {{training.lr: [0.003, 0.01, 0.03, 0.1]}}, {more}}}"


def mtlscale(*arguments: str) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def metrics(path: Path, home: Path) -> dict[str, list[float]]:
    """What `mtlscale leaderboard` says of a home in which nothing runs: method -> its metrics on all tasks."""
    frame = pd.read_csv(io.StringIO(mtlscale("leaderboard", path, "--home", home, "--format", "csv")))
    assert (frame["finished"] == 1).all()
    found = frame.set_index("method").filter(regex=r"^(?!counter\.).+\.[a-z_]+(?<!_ci)$")
    assert found.notna().to_numpy().all() and len(found.columns)
    return {str(method): values.tolist() for method, values in found.iterrows()}


@pytest.mark.slow  # several runs through Ray
@pytest.mark.ray
def test_twins_are_trained_once_and_both_shown(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None
) -> None:
    import mlflow

    path, home = experiment_file(methods=METHODS), tmp_path / "home"
    planned = mtlscale("run", path, "--home", home, "--dry-run")
    assert "same as equal" in planned and "2 runs: 2 new" in planned
    assert "small: 2 runs" in mtlscale("run", path, "--home", home)
    assert sorted(record.method for record in Ledger(Home(home).ledger("small"))) == ["equal", "stl"]
    found = metrics(path, home)
    assert set(found) == {"stl", "equal", "twin"} and found["equal"] == found["twin"] != found["stl"]
    assert "2 of 2 runs are done already" in mtlscale("run", path, "--home", home)
    assert metrics(path, home) == found
    page = (Home(home).experiment("small") / "leaderboard.html").read_text(encoding="utf-8")
    assert ">equal" in page and ">twin" in page
    client = mlflow.MlflowClient(tracking_uri=Home(home).tracking_uri)
    written = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert sorted(run.data.tags["mtlscale.kind"] for run in written) == [
        "experiment",
        "row",
        "row",
        "row",
        "run",
        "run",
    ]
    # A label that comes later finds the run done.
    later = experiment_file(methods="[stl, {name: equal, label: other}, equal]")
    assert "2 of 2 runs are done already" in mtlscale("run", later, "--home", home)
    assert metrics(later, home)["other"] == found["equal"]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("more", ["algorithm: random", "algorithm: grid", "algorithm: optuna"])
def test_twins_are_searched_for_once_and_both_shown(
    experiment_file: Callable[..., Path], tmp_path: Path, local_ray: None, more: str
) -> None:
    path, home = experiment_file(methods=METHODS, search=SEARCH.format(more=more)), tmp_path / "home"
    mtlscale("sweep", path, "--home", home)
    table = pd.read_csv(Home(home).experiment("small") / "sweep.csv")
    trials = {method: list(group["run_id"]) for method, group in table.groupby("method")}
    assert len(trials["equal"]) == 3 and trials["twin"] == trials["equal"]
    ledgers = list(Home(home).experiment("small").glob("trials*.jsonl"))
    assert [len(list(Ledger(ledger))) for ledger in ledgers] == [6]
    mtlscale("run", path, "--home", home)
    assert len(list(Ledger(Home(home).ledger("small")))) == 2
    found = metrics(path, home)
    assert set(found) == {"stl", "equal", "twin"} and found["equal"] == found["twin"]
    assert "2 of 2 runs are done already" in mtlscale("run", path, "--home", home)
    assert metrics(path, home) == found
