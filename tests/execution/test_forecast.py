"""A forecast counts what goes on around the runs, and the runs that follow a search."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from mtlscale.cli.output.dry_run import show
from mtlscale.config import Experiment, load_plugin
from mtlscale.execution.preparing.prepare import look, prepare
from mtlscale.execution.rehearsal import forecast as module
from mtlscale.execution.rehearsal.dry_run import sketch
from mtlscale.execution.rehearsal.forecast import Forecast, Forecasts, forecasts
from mtlscale.records import Home

Small = Callable[..., Experiment]


def row(method: str, runs: int, seconds: float | None, winners: int = 0) -> Forecast:
    return Forecast("digits", method, runs, 10, seconds, 1.0, "", "", winners)


def test_seconds_are_those_of_all_runs_and_what_is_around_them() -> None:
    assert Forecasts((row("a", 4, 3.0, winners=2), row("b", 1, None)), slots=2, around=16.0).seconds == 16 + 18 / 2
    assert Forecasts((row("b", 1, None),), slots=2, around=16.0).seconds is None


def test_a_search_is_forecast_with_its_winners(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    home = Home(tmp_path)
    search = "{budget: 3, space: {training.lr: [0.001, 0.1]}}"
    experiment = small(datasets="[digits]", methods="[equal]", floors="[]", seeds="[0, 1]", search=search)
    with sketch(experiment, home=home) as dry:
        expected = forecasts(dry, home)
        screen = io.StringIO()
        show(Console(file=screen, width=160), dry, forecasts(dry, home))
    (found,) = expected.rows
    assert (found.runs, found.winners) == (2, 2)  # two values, so two trials
    assert expected.around == module.START_SECONDS + module.REPORT_SECONDS
    text = " ".join(screen.getvalue().split())
    assert "no estimate, as no runs like these are over in this home folder" in text
    assert "training.lr: 2 values, 0.001 and 0.1; a range is {low: 0.001, high: 0.1, scale: log}" in text


def test_weights_that_make_other_steps_are_said(small: Small, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from mtlscale.balancing import balancer\n\n\n@balancer()\ndef mine(losses):\n    return losses * 0 - 1000\n"
    )
    load_plugin(tmp_path / "mine.py")
    experiment = small(datasets="[digits]", methods="[equal, mine]", floors="[]", seeds="[0]")
    with sketch(experiment, home=Home(tmp_path)) as dry:
        assert any(line.startswith("mine: a weight of 3 equal losses is negative (-1e+03)") for line in dry.remarks)


def test_nothing_is_trained_for_a_forecast(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a dry run trains nothing")

    monkeypatch.setattr("mtlscale.training.Trainer.train", never)
    home = Home(tmp_path)
    with sketch(small(datasets="[digits]", methods="[equal, mgda]"), home=home) as dry:
        rows = forecasts(dry, home).rows
    assert {row.method for row in rows} == {"equal", "mgda"}
    assert all((row.seconds, row.megabytes, row.parameters, row.time_from) == (None, None, None, "") for row in rows)


def test_what_does_not_fit_here_is_said_and_planned(small: Small, tmp_path: Path) -> None:
    home, screen = Home(tmp_path), io.StringIO()
    experiment = small(datasets="[digits]", methods="[equal]", floors="[]", resources="{gpus_per_worker: 64}")
    with sketch(experiment, home=home) as dry:
        assert dry.plan is not None and len(dry.plan.todo) == len(experiment.seeds)
        show(Console(file=screen, width=200), dry, forecasts(dry, home))
    assert dry.lacking.startswith("a worker needs 1 CPU and 64 GPUs, but the largest node has ")
    assert f"it cannot run here: {dry.lacking}" in screen.getvalue()


def test_files_above_the_room_are_read_only_for_a_preparation_of_theirs(tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    table.write_text("\n".join(["a,good", *(f"{row},{'ny'[row % 2]}" for row in range(60))]) + "\n")
    options, home, scratch = {"targets": {"good": "class"}}, tmp_path / "home", tmp_path / "scratch"
    size = table.stat().st_size
    assert look("table", options, table, home, scratch, size - 1) == (
        "its files (0.0 MiB) are here and not prepared yet",
        0,
    )
    folder, used = look("table", options, table, home, scratch, size)
    assert isinstance(folder, Path) and folder.is_relative_to(scratch) and used == size
    prepared = prepare("table", options, table, home, engine="local")
    assert look("table", options, table, home, scratch, 0) == (prepared, 0)
