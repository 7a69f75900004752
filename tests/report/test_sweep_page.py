"""The page of a search, and what it warns of."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from mtlscale.config import Dimension, Experiment
from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import Dots, Line
from mtlscale.report.sweeps.search_charts import search_charts, trial_front
from mtlscale.report.sweeps.search_study import Searched, of_sweep
from mtlscale.report.sweeps.sweep_page import page
from mtlscale.report.sweeps.sweeps import Sweep

Make = Callable[..., RunRecord]
LR = Dimension(low=1e-4, high=1e-1, scale="log")
UNIT = Dimension(low=0, high=1)
SPACE = {"training.lr": LR, "model.dropout": Dimension(choices=(0.0, 0.25, 0.5))}


def trials(record: Make, method: str, found: list[tuple[float, float, float | None]]) -> tuple[RunRecord, ...]:
    """(lr, dropout, score): None is a trial that failed."""
    return tuple(
        record(
            method,
            1000,
            {"a": {"accuracy": score or 0.0}},
            run_id=f"{method}-{place}",
            status="failed" if score is None else "finished",
            error="out of <memory>" if score is None else None,
            spec={"training": {"selection": "metric"}},
            metrics={} if score is None else {"val": {"a": {"accuracy": score, "loss": 1.0}}},
            trial={"training.lr": lr, "model.dropout": dropout},
        )
        for place, (lr, dropout, score) in enumerate(found)
    )


@pytest.fixture(scope="module")
def searches(record: Make) -> list[Searched]:
    found = {
        ("digits", "stl"): trials(
            record, "stl", [(1e-3, 0.0, 80.0), (3e-3, 0.25, 84.0), (2e-3, 0.5, 82.0), (5e-3, 0.25, 83.0)]
        ),
        ("digits", "</script>"): trials(
            record, "</script>", [(1e-3, 0.25, 85.0), (9e-2, 0.5, 90.0), (1e-2, 0.0, None)]
        ),
        ("digits", "lost"): trials(record, "lost", [(1e-3, 0.0, None)]),
    }
    return of_sweep(found, dict.fromkeys(found, SPACE), None)


def frame(searches: list[Searched]) -> pd.DataFrame:
    rows = [
        {"dataset": one.dataset, "method": one.method, "trial": place, "score": score}
        for one in searches
        for place, score in enumerate(one.scores)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("path", "dimension", "value", "said"),
    [
        ("training.lr", LR, 1e-2, ""),
        (
            "training.lr",
            LR,
            8e-2,
            "lr 0.08 lies at the upper end of its range, 0.0001 to 0.1.",
        ),  # 97 %
        ("training.lr", LR, 6e-2, ""),  # 93 %
        ("training.lr", LR, 1.3e-4, "lr 0.00013 lies at the lower end of its range, 0.0001 to 0.1."),
        (
            "balancer.eps",
            Dimension(low=0, high=1),
            0.96,
            "balancer.eps 0.96 lies at the upper end of its range, 0 to 1.",
        ),
        ("balancer.eps", UNIT, 0.9, ""),
        ("model.dropout", SPACE["model.dropout"], 0.5, "dropout 0.5 is the largest of its 3 choices."),
        ("model.dropout", SPACE["model.dropout"], 0.25, ""),
        ("balancer.normalize", Dimension(choices=("none", "loss", "l2")), "none", ""),  # names have no ends
    ],
)
def test_a_winner_near_a_bound_is_told(record: Make, path: str, dimension: Dimension, value: object, said: str) -> None:
    [run] = trials(record, "x", [(1e-3, 0.0, 80.0)])
    one = Searched("digits", "x", (run.model_copy(update={"trial": {path: value}}),), {path: dimension}, None)
    assert one.near_bounds() == ([said] if said else [])


def test_the_chosen_trial_is_marked_in_every_picture_of_it(searches: list[Searched]) -> None:
    charts = {chart.title: chart for chart in search_charts(searches[0])}
    assert set(charts) == {"Slices", "Importance", "Parallel coordinates", "History"}
    rings = [panel.of(Dots)[0] for panel in charts["Slices"].panels]
    assert [(ring.x[0], ring.y[0]) for ring in rings] == [(3e-3, 84.0), (1.0, 84.0)]
    assert charts["Slices"].panels[1].x.ticks == {0: "0.0", 1: "0.25", 2: "0.5"}
    ring = charts["History"].panels[0].of(Dots)[1]
    assert (ring.x[0], ring.y[0]) == (1, 84.0)
    *others, thick = charts["Parallel coordinates"].panels[0].of(Line)
    assert thick.width > max(line.width for line in others) and "84, lr 0.003, dropout 0.25" in thick.hover
    assert list(thick.y) == pytest.approx([1.0, math.log10(30) / 3, 0.5])


def test_the_front_of_a_search_for_several_objectives(record: Make) -> None:
    found = trials(record, "x", [(1e-3, 0.0, 80.0), (3e-3, 0.25, 84.0), (2e-3, 0.5, 82.0), (1e-3, 0.5, None)])
    sized = [run.model_copy(update={"parameters": size}) for run, size in zip(found, (10, 30, 40, 5), strict=True)]
    objectives = ("accuracy", "parameters")
    places, front = trial_front(sized, objectives)
    assert (places, front.tolist()) == ([0, 1, 2], [True, True, False])  # the failed one has no place in it
    [one] = of_sweep({("digits", "x"): sized}, {("digits", "x"): {}}, None, objectives)
    [chart] = search_charts(one)
    ring, points = chart.panels[0].of(Dots)
    assert chart.title == "Pareto front" and points.hollow == [False, False, True]
    assert (points.x, points.y) == ([10.0, 30.0, 40.0], [80.0, 84.0, 82.0]) and (ring.x, ring.y) == ([30.0], [84.0])


def test_the_page_says_what_was_chosen_and_escapes_names(searches: list[Searched]) -> None:
    html = page("search of <x>", searches, frame(searches))
    words = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert "search of &lt;x&gt;" in words
    assert "&lt;/script&gt; has the best validation score, 90, with lr 0.09, dropout 0.5" in words
    assert "1 of 3 winners lie near a bound" in words and "1 of 3 methods have no finished trial" in words
    assert "dropout 0.5 is the largest of its 3 choices" in words and "lr 0.09 lies at the upper end" in words
    assert "None of 1 trials finished: out of &lt;memory&gt;." in words
    assert html.count("<script") == html.count("</script>")
    places = set(re.findall(r'class="plot" id="([^"]+)"', words))
    assert places == set(re.findall(r'data-for="([^"]+)"', html)) and len(places) == 1 + 4 + 3


def test_nothing_that_finished_is_a_page_too(record: Make) -> None:
    found = {("digits", "lost"): trials(record, "lost", [(1e-3, 0.0, None)])}
    searches = of_sweep(found, dict.fromkeys(found, SPACE), None)
    assert "No trial has finished." in page("lost", searches, frame(searches))


@pytest.mark.parametrize("found", [{}, {("uneven", "equal"): ()}])
def test_where_nothing_was_searched_there_is_no_report(
    small: Callable[..., Experiment], found: dict[tuple[str, str], tuple[RunRecord, ...]], tmp_path: Path
) -> None:
    experiment = small(methods="[equal]", search="{budget: 2, space: {}, methods: {equal: {}}}")
    assert Sweep(experiment, found, tmp_path / "reports").write_report() == {}
    assert not (tmp_path / "reports").exists()


def test_a_search_of_some_rows_of_the_file_has_a_report_of_these(
    small: Callable[..., Experiment], record: Make, tmp_path: Path
) -> None:
    space = "{training.lr: {low: 0.001, high: 0.1, scale: log}, model.dropout: [0, 0.5]}"
    experiment = small(methods="[equal, mgda]", search=f"{{budget: 2, space: {space}}}")
    found = {("uneven", "equal"): trials(record, "equal", [(1e-3, 0.0, 80.0), (1e-2, 0.5, 90.0)])}
    files = Sweep(experiment, found, tmp_path).write_report()
    assert "equal" in files["sweep page"].read_text() and "mgda" not in files["sweep table"].read_text()
