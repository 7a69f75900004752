"""A forecast counts what goes on around the runs, and the runs that follow a search."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from mtlscale.cli.output.dry_run import show
from mtlscale.config import Experiment, load_plugin
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


def test_a_search_is_forecast_with_its_winners(
    small: Small, tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    home = Home(tmp_path)  # type: ignore[arg-type]
    search = "{budget: 3, space: {training.lr: [0.001, 0.1]}}"
    experiment = small(datasets="[digits]", methods="[equal]", floors="[]", seeds="[0, 1]", search=search)
    with sketch(experiment, home=home) as dry:
        expected = forecasts(dry, home, probe=0.0)
        screen = io.StringIO()
        show(Console(file=screen, width=160), dry, forecasts(dry, home))
    (found,) = expected.rows
    assert (found.runs, found.winners) == (2, 2)  # two values, so two trials
    assert expected.around == module.START_SECONDS + module.REPORT_SECONDS
    text = " ".join(screen.getvalue().split())
    assert "trials + runs" in text and "2 + 2" in text and "with Ray's start and the report" in text
    assert ("are trained together" in text) == bool(expected.batched) and "none of them batched" not in text
    assert "training.lr: 2 values, 0.001 and 0.1; a range is {low: 0.001, high: 0.1, scale: log}" in text


def test_methods_of_the_user_are_tried_first(
    small: Small, tmp_path: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "mine.py"  # type: ignore[operator]
    plugin.write_text(
        "from mtlscale.balancing import balancer\n\n\n@balancer()\ndef mine(losses):\n    return losses * 0 - 1000\n"
    )
    load_plugin(plugin)
    home = Home(tmp_path)  # type: ignore[arg-type]
    tried: list[str] = []
    forecast = module._Tries.forecast
    monkeypatch.setattr(
        module._Tries, "forecast", lambda self, run, *rest: tried.append(run.method) or forecast(self, run, *rest)
    )
    experiment = small(datasets="[digits]", methods="[equal, mgda, mine]", floors="[]", seeds="[0]")
    with sketch(experiment, home=home) as dry:
        rows = forecasts(dry, home, probe=0.0).rows
        assert any(line.startswith("mine: a weight of 3 equal losses is negative (-1e+03)") for line in dry.remarks)
    assert tried == ["mine", "equal", "mgda"]
    assert [entry.method for entry in rows] == ["equal", "mgda", "mine"]
