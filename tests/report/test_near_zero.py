"""A metric whose baseline is near 0 makes Δ huge: that is said, and the main metrics are sorted by and tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard
from mtlscale.report.columns.deltas import task_deltas
from mtlscale.report.sections.pairs import of_pairs, pairwise
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.table import Table
from mtlscale.report.tables.takeaway import takeaway

Record = Callable[..., RunRecord]
Scores = Mapping[str, Sequence[tuple[float, float]]]  # method -> (accuracy, brier) of seeds 0, 1, 2

# Seeds move a Brier score of 0.01 by half of it, and one of 0.49 by nothing.
DIGITS: Scores = {
    "stl": [(97.0, 0.006), (97.5, 0.010), (97.2, 0.014)],
    "equal": [(95.0, 0.020), (95.6, 0.011), (95.2, 0.035)],
    "linear": [(99.0, 0.030), (99.5, 0.012), (99.2, 0.011)],
    "constant": [(49.0, 0.490), (49.1, 0.490), (49.0, 0.490)],
}


def tables(record: Record, scores: Scores, metrics: Sequence[str] = ("accuracy", "brier")) -> Table:
    """One table of two tasks; the second metric of task b is far from 0."""
    records = [
        record(
            method,
            seed,
            {"a": dict(zip(metrics, pair, strict=True)), "b": dict(zip(metrics, (pair[0], 0.5), strict=True))},
            higher_is_better={name: name == "accuracy" for name in metrics},
        )
        for method, pairs in scores.items()
        for seed, pair in enumerate(pairs)
    ]
    return Leaderboard.from_records(records).tables["digits"]


def test_the_tests_leave_a_metric_near_0_for_the_main_metrics(record: Record) -> None:
    table = tables(record, DIGITS)
    assert table.order == "delta_main" and table.near_zero == (("a", "brier"),)
    assert list(table.rows.index) == ["linear", "stl", "equal", "constant"]
    assert table.rows["delta_i"]["constant"] < -1000  # what Δ alone would have said
    assert table.rows["verdict"]["constant"] == "worse" and table.rows["verdict"]["linear"] == "better"
    assert table.rows["difference"]["constant"] == pytest.approx(
        (table.rows["delta_main"] - table.rows["delta_main"]["equal"])["constant"]
    )


def test_it_is_said_on_the_table_and_in_its_sentence(record: Record) -> None:
    table = tables(record, DIGITS)
    assert table.notes[0] == "Δ rests on brier of a, whose baseline is near 0 (0.01; constant: 0.49)"
    assert table.notes[1] == "rows are sorted and tested by Δ main, the main metric of each task, instead"
    assert "paired t-tests of Δ of the main metrics against equal" in legend(table)
    said = takeaway(table)
    assert said.startswith(
        "On digits, every network lies below the linear floor: train longer or tune before comparing;"
    )
    assert "of the networks, stl is best by Δ of the main metrics (no network beats single-task learning)," in said
    assert "also better than equal: linear; worse than equal: constant" in said
    assert "Δ of the main metrics" in of_pairs(pairwise(table)).text
    assert list(task_deltas(table).loc["constant"].round()) == [-50, -25]  # of a by its accuracy alone


def test_another_set_s_gains_are_of_the_main_metrics_there(record: Record) -> None:
    near = tables(record, DIGITS)
    far = tables(record, {m: [(a, 0.2 + b) for a, b in pairs] for m, pairs in DIGITS.items()})
    found = Leaderboard({"near": near, "far": far}).overall()
    assert found is not None and far.order == "delta_i" and not far.near_zero
    expected = (near.rows["delta_main"] + far.rows["delta_i"]) / 2
    assert found.rows["gain"]["constant"] == pytest.approx(expected["constant"])
    assert found.rows["worst"]["constant"] > -200


@pytest.mark.parametrize("floor", [True, False])
def test_a_main_metric_near_0_is_tested_as_an_average(floor: bool, record: Record) -> None:
    scores = {m: [(0.5, brier) for _, brier in pairs] for m, pairs in DIGITS.items() if floor or m != "constant"}
    swapped = {m: [(brier, half) for half, brier in pairs] for m, pairs in scores.items()}
    table = tables(record, swapped, ["cross_entropy", "brier"])
    assert table.order == "average" and table.near_zero == (("a", "cross_entropy"), ("b", "cross_entropy"))
    told = "Δ rests on cross_entropy of a and b, whose baseline is near 0 (0.01"
    assert table.notes[0] == told + ("; constant: 0.49 in a)" if floor else " in a)")
    assert "rows are sorted and tested by the average, the main metric of each task, instead" in table.notes
    assert not floor or table.rows["verdict"]["constant"] == "worse"
    overall = Leaderboard({"one": table, "two": tables(record, DIGITS)}).overall()
    assert overall is not None and "no gains on one: its Δ rests on metrics near 0" in overall.notes


def test_unlike_main_metrics_have_no_average_and_keep_their_order(record: Record) -> None:
    records = [
        record(method, seed, {"a": {"cross_entropy": brier, "f": accuracy}, "b": {"accuracy": accuracy}},
               higher_is_better={"cross_entropy": False, "f": True, "accuracy": True})
        for method, pairs in DIGITS.items()
        for seed, (accuracy, brier) in enumerate(pairs)
    ]  # fmt: skip
    table = Leaderboard.from_records(records).tables["digits"]
    assert table.order == "delta_i" and table.notes[1] == "small differences of such a metric are a large Δ"


def test_errors_of_unknown_scale_and_metrics_far_from_0_change_nothing(record: Record) -> None:
    without = {method: pairs for method, pairs in DIGITS.items() if method != "constant"}
    assert tables(record, without, ("accuracy", "abs_err")).order == "delta_i"  # in metres, say
    assert tables(record, DIGITS, ("accuracy", "abs_err")).order == "delta_main"  # the floor shows its scale
    far = {method: [(a, 0.03 + b) for a, b in pairs] for method, pairs in DIGITS.items()}
    assert tables(record, far).order == "delta_i"


def test_a_score_near_0_is_held_against_the_best_row(record: Record) -> None:
    scores = {"stl": (1.0, 1.2, 0.8), "equal": (2.0, 3.0, 2.5), "mgda": (30.0, 31.0, 30.5)}
    near = {method: [(accuracy, 0.5) for accuracy in of] for method, of in scores.items()}
    assert tables(record, near).order == "average"
    assert tables(record, {**near, "mgda": [(19.0, 0.5)] * 3}).order == "delta_i"
