"""What several data sets say together: similarity against improvement, the best size of what is shared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard, write_report
from mtlscale.report.charts.chart import Dots, Line
from mtlscale.report.charts.colors import line_styles
from mtlscale.report.report_section import HTML
from mtlscale.report.sections import similarity
from mtlscale.report.sections.capacity import best_size, capacity, capacity_rows, gains
from mtlscale.report.sections.capacity import sentence as capacity_sentence
from mtlscale.report.sections.method_tables import method_tables
from mtlscale.report.sections.registry import sections
from mtlscale.report.sections.similarity import correlation, pairs, sentence, similarity_chart, turned

Make = Callable[..., RunRecord]
WithoutEpochs = Callable[[Iterable[RunRecord]], list[RunRecord]]
GAINS = (-1.0, 0.0, 2.0, 1.0)  # of aligned over equal on each pair


def table(score: float) -> list[list[float]]:
    return [[1.0, score], [score, 1.0]]


@pytest.fixture
def aligned(record: Make) -> list[RunRecord]:
    """Four pairs of tasks, two seeds; the similarity before is 0.1, 0.2, 0.3, 0.4."""
    found = []
    for place, gain in enumerate(GAINS):
        before = 0.1 * (place + 1)
        for seed in (0, 1):
            for method, score in (("stl", 79.0), ("equal", 80.0), ("aligned", 80.0 + gain), ("held", 80.5)):
                test = {"a": {"accuracy": score + seed}, "b": {"accuracy": score - 10.0}}
                after = before if method == "held" else before + 0.05
                structure = {"tasks": ["a", "b"]}
                if method in ("aligned", "held"):
                    structure |= {"covariance_similarity": {"before": table(before), "after": table(after)}}  # type: ignore[dict-item]
                found.append(record(method, seed, test, dataset=f"pair {place}", structure=structure))
    return found


def test_pairs_have_the_gain_over_the_reference_and_the_scores(aligned: list[RunRecord]) -> None:
    found = pairs(aligned, "equal")
    assert list(found) == ["aligned", "held"]
    assert [pair.gain for pair in found["aligned"]] == pytest.approx(GAINS)
    assert [pair.before for pair in found["aligned"]] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert turned(found["aligned"]) and not turned(found["held"])
    text = sentence("aligned", "equal", found["aligned"])
    assert text.startswith(
        "aligned is better than equal on 2 of 4 pairs, by +0.50 on average; the similarity grows on 4"
    )
    moved, held = similarity_chart(found, "equal", line_styles(list(found))).panels
    assert [dots.legend for dots in moved.of(Dots)] == ["after", "before"] and len(moved.of(Line)) == 1
    assert [dots.legend for dots in held.of(Dots)] == ["before"] and not held.of(Line)


def test_errors_gain_where_they_fall(aligned: list[RunRecord]) -> None:
    worse = [
        run.model_copy(update={"higher_is_better": {**run.higher_is_better, "accuracy": False}}) for run in aligned
    ]
    assert [pair.gain for pair in pairs(worse, "equal")["aligned"]] == pytest.approx([-gain for gain in GAINS])


def test_too_few_pairs_other_metrics_and_failed_runs_are_no_study(aligned: list[RunRecord]) -> None:
    assert not pairs([run for run in aligned if run.dataset in ("pair 0", "pair 1")], "equal")
    assert not pairs(
        [run.model_copy(update={"main_metrics": {"a": "accuracy", "b": "error"}}) for run in aligned], "equal"
    )
    failed = [
        run.model_copy(update={"status": "failed"}) if run.method == "aligned" and run.seed == 0 else run
        for run in aligned
    ]
    assert [pair.gain for pair in pairs(failed, "equal")["aligned"]] == pytest.approx(GAINS)  # of the other seed


def test_correlations_are_scipys_with_an_interval_around_them() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.5, 2.9, 4.2, 30.0]
    linear, ranks = correlation("pearson", x, y), correlation("spearman", x, y)
    assert linear is not None and ranks is not None
    assert ranks.value == pytest.approx(1.0) and linear.value == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert linear.low < linear.value < linear.high
    assert correlation("pearson", [1.0] * 5, y) is None


@pytest.mark.parametrize(("kind", "scipys"), [("pearson", stats.pearsonr), ("spearman", stats.spearmanr)])
def test_intervals_are_of_scipys_correlations_of_samples_drawn_again(
    kind: str, scipys: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "_DRAWS", 40)
    x, y = np.array([1.0, 2.0, 2.0, 4.0]), np.array([1.0, 3.0, 2.0, 2.0])
    draws = np.random.default_rng(0).integers(4, size=(40, 4))
    varied = [draw for draw in draws if np.ptp(x[draw]) and np.ptp(y[draw])]
    values = [scipys(x[draw], y[draw]).statistic for draw in varied]
    found = correlation(kind, x.tolist(), y.tolist())
    assert found is not None and len(varied) < 40
    assert [found.low, found.high] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist())


def test_each_data_set_says_how_alike_its_tasks_are(aligned: list[RunRecord]) -> None:
    [table] = method_tables([run for run in aligned if run.dataset == "pair 0"])
    assert table.texts == (("aligned", "a, b", "0.100", "0.150", "2"),)  # the other turns nothing


def test_a_report_has_the_study(aligned: list[RunRecord], without_epochs: WithoutEpochs, tmp_path: Path) -> None:
    aligned = without_epochs(aligned)
    files = write_report(aligned, tmp_path, "pairs")
    text = files["markdown"].read_text()
    assert "## Covariance similarity and improvement" in text
    assert "| pair 0 | 74.25 | 75.25 | 74.25 | 75.75 | 0.100 | 0.150 |" in text  # stl, equal, aligned, held
    assert "| held | before |" in text and "| held | after |" not in text
    assert files["similarity"].stat().st_size > 10_000
    assert "Covariance similarity and improvement</h2>" in files["html"].read_text()


def sized(record: Make, encoder: Callable[[int], dict[str, Any]], sizes: Sequence[int]) -> list[RunRecord]:
    """Task a likes a width of 10 alone and task b one of 20; together 20 is the best on validation, 30 on test."""
    found = []
    for size in sizes:
        for seed in (0, 1):
            for method in ("stl", "equal"):
                distances = (
                    (abs(size - 10), abs(size - 20)) if method == "stl" else (abs(size - 20), abs(size - 20) - 5)
                )
                val = {task: {"accuracy": 90.0 - far} for task, far in zip("ab", distances, strict=True)}
                test = {task: {"accuracy": 60.0 + size + seed} for task in "ab"}
                spec = {"encoder": encoder(size)}
                fields = {"dataset": f"{size} units", "spec": spec, "metrics": {"val": val, "test": test}}
                found.append(record(method, seed, test, **fields))
    return found


@pytest.mark.parametrize("value", [lambda size: size, lambda size: [size]])
def test_sizes_are_chosen_on_validation(record: Make, value: Callable[[int], Any]) -> None:
    records = sized(record, lambda size: {"name": "mlp", "hidden": value(size)}, (10, 20, 30))
    of = capacity(records, "stl")
    assert of is not None
    assert (best_size(of, "stl", "a"), best_size(of, "stl", "b"), best_size(of, "equal")) == (10, 20, 20)
    assert list(capacity_rows(of)) == [
        ("a", "10", "70.50", "20", "80.50"),
        ("b", "20", "80.50", "20", "80.50"),
        ("all", "30", "75.50", "20", "80.50"),
    ]
    assert gains(of, "equal").to_dict() == pytest.approx({10: -2.5, 20: 7.5, 30: 7.5})
    text = capacity_sentence(of, "equal")
    assert text.startswith("equal is best with hidden 20 for all tasks (80.50 on test)") and "add up to 30" in text


def test_other_data_or_two_settings_are_no_capacity_study(record: Make) -> None:
    records = sized(record, lambda size: {"name": "mlp", "hidden": size, "dropout": size / 100}, (10, 20, 30))
    assert capacity(records, "stl") is None
    records = sized(record, lambda size: {"name": "mlp", "hidden": size}, (10, 20, 30))
    assert capacity([run.model_copy(update={"fingerprint": run.dataset}) for run in records], "stl") is None
    assert capacity([run for run in records if run.dataset != "10 units"], "stl") is None
    assert capacity(records, "single") is None


def test_a_report_has_the_capacities(record: Make, without_epochs: WithoutEpochs, tmp_path: Path) -> None:
    records = without_epochs(sized(record, lambda size: {"name": "mlp", "hidden": size}, (10, 20, 30)))
    files = write_report(records, tmp_path, "capacity")
    assert "| all | 30 | 75.50 | 20 | 80.50 |" in files["markdown"].read_text()
    assert files["capacity"].stat().st_size > 10_000
    made = sections(Leaderboard.from_records(records).report(records), HTML)
    [study] = [section for section in made if section.key == "capacity"]
    assert study.chart.legend_names == ["stl", "equal"]
    rings = [ring for ring in study.chart.panels[0].of(Dots) if len(ring.x)]
    assert [(list(ring.x), list(ring.y)) for ring in rings] == [([10.0], [70.5]), ([20.0], [80.5])]
