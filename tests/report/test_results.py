"""A report is drawn again when anything that shapes it has changed, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

import mtlscale.report.results as module
from mtlscale.config import Experiment
from mtlscale.records import RunRecord
from mtlscale.report import Results

PUBLISHED = {"source": "A paper", "dataset": "digits", "metric": "accuracy", "tasks": ["a", "b"]}
Make = Callable[..., Results]
WithoutEpochs = Callable[[Iterable[RunRecord]], list[RunRecord]]


@pytest.fixture
def results(tmp_path: Path, small: Callable[..., Experiment], board_records: list[RunRecord]) -> Make:
    """results(reference="stl"): of an experiment that differs in this."""
    published = tmp_path / "published.yaml"
    published.write_text(yaml.safe_dump({**PUBLISHED, "methods": {"stl": {"name": "STL", "values": [90, 80]}}}))
    experiment = small().model_copy(update={"published": published})

    def make(records: list[RunRecord] = board_records, **changes: Any) -> Results:
        return Results(experiment.model_copy(update=changes), tuple(records), tmp_path)

    return make


def test_a_report_is_written_again_when_its_state_is_another(
    results: Make, board_records: list[RunRecord], without_epochs: WithoutEpochs, tmp_path: Path
) -> None:
    records = without_epochs(board_records)

    def written(**changes: Any) -> bool:
        mark = tmp_path / "leaderboard.md"
        if mark.exists():
            mark.write_text("as it was", encoding="utf-8")
        results(records, **changes).write_report()
        return mark.read_text(encoding="utf-8") != "as it was"

    assert written() and not written()
    assert written(reference="stl") and not written(reference="stl")


@pytest.mark.parametrize("change", [{"reference": "stl"}, {"baseline": "equal"}, {"published": None}, {"name": "b"}])
def test_another_experiment_is_another_report(results: Make, change: dict[str, Any]) -> None:
    assert results(**change).state() != results().state() == results().state()


@pytest.mark.skipif("delta" not in Experiment.model_fields, reason="every metric enters Δ here")
def test_another_choice_of_metrics_is_another_report(results: Make) -> None:
    assert results(delta=("accuracy",)).state() != results().state()


def test_another_published_number_is_another_report(results: Make, tmp_path: Path) -> None:
    before, file = results().state(), tmp_path / "published.yaml"
    file.write_text(file.read_text().replace("90", "91"))
    assert results().state() != before


@pytest.mark.parametrize(("name", "value"), [("__version__", "9.9"), ("program", lambda: "edited")])
def test_another_version_is_another_report(
    results: Make, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    before = results().state()
    monkeypatch.setattr(module, name, value)
    assert results().state() != before


def test_another_split_is_another_report(results: Make, board_records: list[RunRecord]) -> None:
    on_val = [r.model_copy(update={"metrics": {"val": r.metrics["test"]} if r.metrics else {}}) for r in board_records]
    assert results(on_val).state() != results().state()


def test_other_runs_are_another_report(results: Make, board_records: list[RunRecord]) -> None:
    again = [record.model_copy(update={"finished": "2030-01-01T00:00:00+00:00"}) for record in board_records]
    relabelled = [record.model_copy(update={"method": f"my {record.method}"}) for record in board_records]
    states = {results(records).state() for records in (board_records, board_records[:-1], again, relabelled)}
    assert len(states) == 4


def test_where_it_runs_does_not_matter(results: Make) -> None:
    resources = results().experiment.resources.model_copy(update={"start_minutes": 99})
    assert results(resources=resources).state() == results().state()


def test_the_program_is_every_module_that_makes_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "report" / "results.py"))
    part = tmp_path / "report" / "tables" / "columns.py"
    part.parent.mkdir(parents=True)
    part.write_text("old")
    before = module.program.__wrapped__()
    part.write_text("new")
    assert module.program.__wrapped__() != before


def test_printed_they_are_the_leaderboard(results: Make) -> None:
    made = results()
    text = str(made)
    assert text == repr(made) == repr(made.leaderboard())
    assert "average" in text and "equal" in text and len(text) < 10_000 and "\x1b" not in text
    assert str(results(records=[])) == "Results of small: no runs"
