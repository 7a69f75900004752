"""Learning curves: what each method reaches with each share of a set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard, write_report
from mtlscale.report.charts.chart import Level, Line
from mtlscale.report.sections.data_settings import courses
from mtlscale.report.sections.learning_curves import learning_curves
from mtlscale.report.sensitivity import Sensitivity

Make = Callable[..., RunRecord]
WithoutEpochs = Callable[[Iterable[RunRecord]], list[RunRecord]]
SHARES = {"digits": 1.0, "digits 5 %": 0.05, "digits 25 %": 0.25}


@pytest.fixture
def runs(record: Make) -> list[RunRecord]:
    """Four methods, three seeds: sharing gains where there are few samples."""
    found = []
    for dataset, share in SHARES.items():
        spec = {"dataset": {"name": "digits", "negatives": 20, **({"train_share": share} if share < 1 else {})}}
        for seed in range(3):
            for method, gain in (("stl", 0.0), ("equal", 5.0 * (1 - share)), ("mgda", -4.0), ("constant", -40.0)):
                score = 90.0 + 5.0 * share + gain + 0.1 * ((seed + len(method)) % 3)
                test = {"a": {"accuracy": score}, "b": {"accuracy": score - 1}}
                found.append(record(method, seed, test, dataset=dataset, spec={**spec, "seed": seed}))
    return found


def drawn(runs: list[RunRecord], **fields: Mapping[str, str]) -> list[Sensitivity]:
    return list(learning_curves(runs, Leaderboard.from_records(runs, **fields).tables))  # type: ignore[arg-type]


def test_every_method_has_its_mean_at_each_share_smallest_first(runs: list[RunRecord]) -> None:
    (found,) = drawn(runs)
    assert (found.baseline, found.file) == ("stl", "learning_curves_digits")
    assert list(found.panels) == ["test accuracy, mean over tasks", "Δ over stl, %"]
    scores = found.panels["test accuracy, mean over tasks"]["equal"]
    assert list(scores["x"]) == [5.0, 25.0, 100.0]
    assert list(scores["value"]) == pytest.approx([94.6 - 0.25 + 0.25, 94.6 - 1.25 + 1.25, 94.6])
    assert (scores["ci"] > 0).all()
    gains = found.panels["Δ over stl, %"]
    assert "stl" not in gains and gains["equal"]["value"].is_monotonic_decreasing


def test_one_share_is_no_curve_and_other_options_are_another_set(runs: list[RunRecord]) -> None:
    assert drawn([run for run in runs if run.dataset == "digits 5 %"]) == []
    for run in runs:
        if run.dataset == "digits":
            run.spec["dataset"]["negatives"] = 10
    (found,) = drawn(runs)
    assert found.file == "learning_curves_digits_25_"


def test_shares_are_no_course(runs: list[RunRecord]) -> None:
    assert list(courses(runs, Leaderboard.from_records(runs).tables)) == []


def test_pictures_have_a_line_for_each_method_but_the_constant_floor(runs: list[RunRecord]) -> None:
    (found,) = drawn(runs)
    scores, gains = found.chart({}).panels
    assert sorted(line.name for line in scores.of(Line)) == ["equal", "mgda", "stl"]
    assert sorted(line.name for line in gains.of(Line)) == ["equal", "mgda"] and gains.of(Level)[0].at == 0
    assert scores.x.log and list(scores.x.ticks.values()) == ["5", "25", "100"]


def test_the_report_says_which_methods_the_tests_tell_apart(
    runs: list[RunRecord], without_epochs: WithoutEpochs, tmp_path: Path
) -> None:
    (found,) = drawn(runs)
    said = found.sentences
    assert len(said) == 3 and said[0].startswith("digits 5 %: ") and "mgda" in said[0].partition(" worse")[0]
    files = write_report(without_epochs(runs), tmp_path, "x")
    text = files["markdown"].read_text()
    assert "## Learning curves on digits" in text and "| method | 5 % | 25 % | 100 % |" in text
    assert files["learning_curves_digits"].exists() and "Learning curves on digits" in files["html"].read_text()


def test_shares_of_one_task_have_its_metric_first_and_the_whole_set_last(runs: list[RunRecord]) -> None:
    for run in runs:
        told = run.spec["dataset"]
        run.spec["dataset"] = {**told, "train_share": {"b": told["train_share"]}} if "train_share" in told else told
    (found,) = drawn(runs)
    assert found.title == "Learning curves on digits, shares of b alone"
    assert found.tables[0].header == ("method", "5 %", "25 %", "100 %")
    first, lines = next(iter(found.panels.items()))
    assert first == "test accuracy of b"
    assert list(lines["equal"]["value"]) == pytest.approx([94.1] * 3)
    gains = found.panels["gain of b over stl, accuracy"]
    assert list(gains) == ["equal", "mgda", "constant"] and list(gains["equal"]["x"]) == [5.0, 25.0, 100.0]
    by_seed = [5.0 * 0.95 + 0.1 * ((seed + 5) % 3 - (seed + 3) % 3) for seed in range(3)]
    assert gains["equal"]["value"][0] == pytest.approx(statistics.mean(by_seed))
    assert gains["equal"]["ci"][0] == pytest.approx(4.303 * statistics.stdev(by_seed) / 3**0.5, rel=1e-3)
    for run in runs:
        if run.dataset == "digits 5 %":
            run.spec["dataset"] = {**run.spec["dataset"], "train_share": {"a": 0.5, "b": 0.5}}
    (found,) = drawn(runs)
    assert found.tables[0].header == ("method", "25 %", "100 %")
