import functools
import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from mtlscale.config import UserError
from mtlscale.report.charts.colors import line_styles
from mtlscale.report.charts.vega import save
from mtlscale.report.formats.pages import Drawing
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.overall.columns import columns, letters
from mtlscale.report.overall.multi_dataset import BETTER, OPEN, SAME, WORSE, comparable
from mtlscale.report.overall.plots import charts, levels
from mtlscale.report.overall.takeaway import sentence
from mtlscale.report.stats.pareto import pareto
from mtlscale.report.stats.statistics import half_width

METHODS = {"stl": 0.0, "equal": 0.5, "good": 4.5, "like": 0.6, "bad": -6.0}


def records_of(record, datasets=7, seeds=2, gains=METHODS, skipped=(), **fields):
    """Two tasks; `gains` are points over 80 on the first and half of them on the second, differing by data set."""
    return [
        record(
            method,
            seed,
            {
                "a": {"accuracy": 80.0 + gain * (1 + place / 20) + 0.01 * seed},
                "b": {"accuracy": 80.0 + gain / 2 - 0.01 * seed},
            },
            dataset=f"set {place}",
            seconds=2.0 * (1 + list(gains).index(method)),
            parameters=1000 + 100 * list(gains).index(method),
            **fields,
        )
        for place in range(datasets)
        for method, gain in gains.items()
        if (method, place) not in skipped
        for seed in range(seeds)
    ]


def drawn(found):
    return list(charts(found, line_styles([str(method) for method in found.rows.index], found.baseline)))


@functools.cache
def overall_of(record, datasets=7, seeds=2, methods=tuple(METHODS), skipped=(), rope=None):
    """What is said over data sets of such records. Many tests look at the same ones, which nothing changes."""
    board = board_of(record, datasets, seeds, methods, skipped)
    return board.overall() if rope is None else board.overall(rope=rope)


@functools.cache
def board_of(record, datasets=7, seeds=2, methods=tuple(METHODS), skipped=()):
    gains = {method: METHODS[method] for method in methods}
    return Leaderboard.from_records(records_of(record, datasets, seeds, gains, skipped))


def test_a_cost_that_one_data_set_does_not_know_is_no_mean_of_the_others(record):
    records = [
        one.model_copy(update={"parameters": 0}) if (one.dataset, one.method) == ("set 0", "good") else one
        for one in records_of(record, datasets=2, seeds=1)
    ]
    trade = Leaderboard.from_records(records).overall().trade
    assert np.isnan(trade["parameters"]["good"]) and trade["parameters"].drop("good").notna().all()


def test_one_data_set_is_no_overall_table(board_records, record):
    assert Leaderboard.from_records(board_records).overall() is None
    assert overall_of(record, datasets=2) is not None


def test_ranks_wins_and_gains_by_hand(record):
    board, found = board_of(record), overall_of(record)
    assert list(found.rows.index) == ["good", "like", "equal", "stl", "bad"]
    assert found.rows["mean_rank"].tolist() == [1, 2, 3, 4, 5]
    assert found.rows["wins"].tolist() == [100, 75, 50, 25, 0]
    deltas = np.array([table.rows["delta_i"]["good"] for table in board.tables.values()])
    assert found.rows["gain"]["good"] == pytest.approx(deltas.mean())
    assert found.rows["gain_ci"]["good"] == pytest.approx(half_width(deltas.std(ddof=1), 7))
    assert found.rows["gain"]["stl"] == 0 and math.isnan(found.rows["gain_ci"]["stl"])
    worst = found.rows.loc["bad"]
    assert (worst["worst_dataset"], worst["worst_task"]) == ("set 6", "a")
    assert worst["worst"] == pytest.approx(np.mean([-6.0 * 1.3 / (80.0 + 0.01 * seed) * 100 for seed in (0, 1)]))
    assert found.rows["worst_task"]["stl"] == "" and math.isnan(found.rows["worst"]["stl"])
    assert found.rows[["datasets", "finished", "runs"]].loc["good"].tolist() == [7, 14, 14]


def test_verdicts_go_by_the_rope(record):
    verdicts = {"good": BETTER, "like": SAME, "equal": "", "stl": SAME, "bad": WORSE}
    assert overall_of(record).rows["verdict"].to_dict() == verdicts
    wide, narrow = (overall_of(record, rope=rope).rows["verdict"] for rope in (20.0, 0.01))
    assert set(wide) == {SAME, ""} and narrow["like"] == BETTER and narrow["stl"] == WORSE
    chances = overall_of(record).rows[["better", "same", "worse"]].sum(axis=1)
    assert chances.drop("equal").tolist() == pytest.approx([1.0] * 4)
    for rope in (0.0, -1.0, math.nan):
        with pytest.raises(UserError, match="give one above 0"):
            board_of(record).overall(rope=rope)


def test_costs_are_geometric_means_of_ratios_to_the_reference(record):
    runs = [
        record(method, 0, {"a": {"accuracy": 90.0}}, dataset=data, seconds=seconds, peak_memory_mb=memory)
        for data, method, seconds, memory in (
            ("x", "equal", 10.0, 100.0),
            ("x", "slow", 40.0, 100.0),
            ("y", "equal", 1.0, 50.0),
            ("y", "slow", 1.0, 100.0),
        )
    ]
    rows = Leaderboard.from_records(runs).overall().rows
    assert rows["seconds"].to_dict() == pytest.approx({"equal": 1.0, "slow": 2.0})
    assert rows["memory"]["slow"] == pytest.approx(math.sqrt(2)) and rows["search"].isna().all()


def test_fronts_are_of_the_compared_methods(record):
    found = overall_of(record)
    # Seconds and parameters grow with the place in METHODS: stl, equal, good are each the best so far.
    assert found.rows["front_total"].to_dict() == {
        "good": True,
        "like": False,
        "equal": True,
        "stl": True,
        "bad": False,
    }
    assert found.rows["front_parameters"].equals(found.rows["front_total"].rename("front_parameters"))
    assert not pareto(np.array([1.0, np.nan]), np.array([np.nan, 1.0])).any()


def test_missing_methods_are_left_out_of_ranks_and_named(record):
    skipped = tuple(("like", place) for place in range(6))
    found = overall_of(record, skipped=skipped)
    assert list(found.ranks.columns) == ["good", "equal", "stl", "bad"] and len(found.ranks) == 7
    assert math.isnan(found.rows["mean_rank"]["like"]) and found.rows.index[-1] == "like"
    assert found.rows["datasets"]["like"] == 1 and found.rows["wins"]["like"] == 75
    assert "no rank, not finished on all of these: like" in found.notes
    found = overall_of(record, skipped=(("like", 3),))
    assert len(found.ranks) == 6 and "like" in found.ranks
    assert any("without set 3" in note for note in found.notes)


def test_the_choice_of_what_is_compared():
    few, many = frozenset("ab"), frozenset("abcdef")
    assert comparable({"x": few, "y": many, "z": many}, None) == (["y", "z"], list("abcdef"))
    assert comparable({"x": few, "y": many}, None) == (["x", "y"], ["a", "b"])
    assert comparable({"x": frozenset("ab"), "y": frozenset("bc")}, None) == ([], [])
    pairs = {"x": frozenset("ab"), "y": frozenset("ab"), "z": frozenset("cd"), "w": frozenset("cd")}
    assert comparable(pairs, "c")[1] == ["c", "d"] and comparable(pairs, "a")[1] == ["a", "b"]


def test_too_few_data_sets_are_said_and_nothing_is_invented(record):
    found = overall_of(record, datasets=4)
    assert math.isnan(found.friedman.p) and math.isnan(found.critical_difference) and found.cliques == ()
    assert found.rows[["better", "same", "worse"]].isna().all(axis=None) and set(found.rows["verdict"]) == {""}
    assert "four data sets are too few to rank methods (5 needed)" in found.notes
    said = "four data sets are too few to say how probably a method is better than equal (5 needed)"
    assert said in found.notes
    assert "Over 4 data sets, too few for a test of ranks, good has the best mean rank" in sentence(found)
    assert [chart.file for chart in drawn(found) if chart.file] == ["pareto"]
    two = overall_of(record, datasets=2, seeds=1)
    assert two.rows["gain_ci"].isna().all() and any(
        note.startswith("one seed on set 0 and set 1") for note in two.notes
    )


def test_nothing_in_common_is_a_table_too(record):
    runs = [record(method, 0, {"a": {"accuracy": 80.0}}, dataset=data) for data, method in (("x", "one"), ("y", "two"))]
    lost = record(
        "lost", 0, {}, main_metrics={}, higher_is_better={}, status="failed", error="out of memory", dataset="z"
    )
    found = Leaderboard.from_records([*runs, lost]).overall()
    assert sentence(found).startswith("No two methods finished on two of the 3 data sets, so nothing is ranked")
    assert found.rows["mean_rank"].isna().all() and drawn(found) == []
    assert [column.header for column in columns(found)] == ["data sets", "runs"]
    assert "no reference: no probabilities and no cost ratios" in found.notes


def test_without_a_baseline_points_over_the_reference_are_compared(record):
    found = overall_of(record, methods=("equal", "good", "like", "bad"))
    assert found.quality == "average" and found.rows["worst"].isna().all()
    assert found.rows["gain"]["equal"] == 0 and found.rows["verdict"]["good"] == BETTER
    errors = [
        record(method, 0, {"a": {"error": value}}, dataset=str(place))
        for place in range(5)
        for method, value in (("equal", 20.0), ("good", 10.0))
    ]
    rows = Leaderboard.from_records(errors).overall().rows
    assert rows["gain"]["good"] == 10.0 and rows["verdict"]["good"] == BETTER and rows["mean_rank"]["good"] == 1


def test_sentences(record):
    assert sentence(overall_of(record)) == (
        "Over 7 data sets good has the best mean rank (1, 5 methods), and ranks do not tell it from like and equal "
        "(Friedman p = 1.2e-05; ranks have to be 2.31 apart); against equal, with P ≥ 0.95 and ±1 point as equivalent, "
        "good is better than it, like and stl are practically equivalent to it, bad is worse than it."
    )
    generator = np.random.default_rng(0)
    noise = [
        record(method, 0, {"a": {"accuracy": 80.0 + generator.normal(0, 3)}}, dataset=str(place))
        for place in range(8)
        for method in ("stl", "equal", "one", "two")
    ]
    found = Leaderboard.from_records(noise).overall()
    assert "but ranks differ no more than by chance (Friedman p = " in sentence(found)
    assert "with P ≥ 0.95 none is better than equal, worse or equivalent (±1 point); most likely" in sentence(found)
    assert set(found.rows["verdict"]) == {OPEN, ""} and found.cliques == (tuple(found.ranks.columns),)


def test_a_floor_that_leads_is_said_first(record):
    """Also where the best networks are level with it."""
    values = {"linear": 90.0, "equal": 80.0, "one": 70.0}
    for level, first in ((80.0, "Every network ranks below"), (90.0, "No network ranks above")):
        values["equal"] = level
        runs = [
            record(
                method,
                0,
                {"a": {"accuracy": value}},
                dataset=f"set {place}",
                spec={
                    "architecture": {"name": "linear" if method == "linear" else "hps"},
                    "balancer": {"name": "equal"},
                },
            )
            for place in range(3)
            for method, value in values.items()
        ]
        text = sentence(Leaderboard.from_records(runs).overall())
        assert text.startswith(f"{first} the linear floor: train longer or tune before comparing; over 3 data sets")
        assert "linear (a floor)" in text


@functools.cache
def noisy(record, methods=tuple(range(5)), datasets=tuple(range(6)), shift=0.0):
    values = 80.0 + np.random.default_rng(2).normal(0, 3, (6, 5)).round(3)
    runs = [
        record(f"m{m}" if m else "equal", 0, {"a": {"accuracy": values[d, m] + shift}}, dataset=f"set {d}")
        for d in datasets
        for m in methods
    ]
    return Leaderboard.from_records(runs).overall()


@settings(max_examples=1, deadline=None)  # beside the one given; each is a leaderboard of six data sets
@given(st.permutations(range(5)), st.permutations(range(6)), st.floats(-20, 15))
@example([3, 0, 4, 2, 1], [5, 2, 0, 3, 1, 4], 7.5)
def test_order_and_a_constant_change_nothing(record, methods, datasets, shift):
    one, other = noisy(record), noisy(record, tuple(methods), tuple(datasets), shift)
    numbers = ["mean_rank", "wins", "gain", "better", "same", "worse"]
    pd.testing.assert_frame_equal(one.rows[numbers], other.rows[numbers].loc[one.rows.index])
    assert one.friedman.p == pytest.approx(other.friedman.p)


def test_columns_have_a_cell_for_every_method(record):
    found = overall_of(record)
    by = {column.header: column for column in columns(found)}
    assert all(len(column.cells) == len(found.rows) for column in by.values())
    assert by["rank"].texts[0] == "1.00" and by["rank"].marked("best") == by["vs equal"].marked("gain") == {0}
    assert by["group"].texts == ["a", "ab", "abc", "bc", "c"]
    assert by["on task"].texts[-1] == "a, set 6" and by["worst Δ %"].texts[-1].startswith("−9.7")
    assert by["Δ %"].texts[3] == "0.00" and " ± " in by["Δ %"].texts[0]
    assert by["s/run ×"].block == "cost" and by["front"].texts[0] == "time, params" and "+ search ×" not in by


def test_letters_of_groups():
    assert letters([("a", "b"), ("b", "c")], list("abcd")) == {"a": "a", "b": "ab", "c": "b", "d": "c"}
    many = [f"m{k}" for k in range(60)]
    marks = letters([], many)
    assert len(set(marks.values())) == 60 and marks["m59"] == "(60)"


def test_bars_of_a_level_do_not_touch():
    means = pd.Series({"a": 1.0, "b": 2.0, "c": 2.5, "d": 4.0, "e": 5.0})
    assert levels([["a", "b"], ["b", "c"], ["d", "e"], ["a"]], means) == [(0, 1.0, 2.0), (1, 2.0, 2.5), (0, 4.0, 5.0)]


@pytest.mark.parametrize("methods", [3, 70])
def test_pictures_are_legible_and_no_taller_than_4000_pixels(record, tmp_path, methods):
    generator = np.random.default_rng(0)
    runs = [
        record(
            "equal" if k == 0 else f"method $number$ <b>{k}",
            0,
            {"a": {"accuracy": 70 + 10 * k / methods + generator.normal()}},
            dataset=str(place),
            parameters=1000 + k,
        )
        for place in range(6)
        for k in range(methods)
    ]
    found = Leaderboard.from_records(runs).overall()
    pictures = {chart.file: chart for chart in drawn(found) if chart.file}
    assert list(pictures) == ["critical_difference", "probabilities", "pareto"]
    shown = min(methods, 60)
    for name, chart in pictures.items():
        with Image.open(save([chart], tmp_path / f"{name}.png")) as image:
            assert image.height <= 4000 and image.width <= 4000
        svg = save([chart], tmp_path / f"{name}.svg").read_text()
        places = re.findall(r'<text text-anchor="(\w+)" transform="translate\(([\d.-]+),([\d.-]+)\)"[^>]*>([^<]+)', svg)
        named = [place for place in places if "method $number$" in place[3]]
        assert len({text for *_, text in named}) >= shown - 1
        if name == "critical_difference":  # names do not lie on each other
            for side in ("start", "end"):
                heights = sorted(float(y) for anchor, _, y, _ in named if anchor == side)
                assert min(np.diff(heights), default=9.0) > 8.0


def test_figures_escape_what_a_user_named(record):
    gains = {"equal": 0.0, "<b>one": 1.0, "two": 2.0}
    found = Leaderboard.from_records(records_of(record, gains=gains)).overall()
    shown = [chart for chart in drawn(found) if chart.title]
    assert [chart.title for chart in shown] == [
        "Mean ranks",
        "Probability of being better",
        "Quality and cost over data sets",
    ]
    for chart in shown:
        assert chart.note.endswith(".") and "<" not in Drawing("place", chart).source
