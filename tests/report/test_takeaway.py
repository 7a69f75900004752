import warnings

import numpy as np
import pytest

from mtlscale.records import ItemErrors
from mtlscale.report.columns.shown import columns
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sections.tables import caption
from mtlscale.report.stats.statistics import half_width, paired_tests
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.takeaway import takeaway

NOISE = np.array([0.0, 0.4, -0.3, 0.2, -0.3])


def told(record, runs, metric="accuracy", **names):
    """The takeaway of method -> its scores by seed."""
    records = [record(m, seed, {"a": {metric: v}}) for m, of in runs.items() for seed, v in enumerate(of)]
    return takeaway(next(iter(Leaderboard.from_records(records, **names).tables.values())))


def test_a_better_method_is_said_with_its_difference_and_interval(record):
    equal = 80.0 + NOISE
    good = equal + 2.0 + 0.1 * NOISE[::-1]
    said = told(
        record, {"equal": equal, "good": good, "bad": equal - 3.0 + 0.1 * NOISE[::-1], "like": equal + NOISE**3}
    )
    difference = good - equal
    width = half_width(difference.std(ddof=1), 5)
    assert said.startswith(f"On digits, good is best by average ({good.mean():.4g}), better than equal by ")
    assert f"by {difference.mean():.2f} ± {width:.2f} points (5 seeds, Holm p = " in said
    assert said.endswith("; worse than equal: bad; like cannot be told from equal.")


def test_several_that_are_better(record):
    equal = 80.0 + NOISE
    runs = {"equal": equal, **{f"good{k}": equal + k + 0.01 * NOISE[::-1] for k in (1, 2, 3)}}
    said = told(record, runs)
    assert "good3 is best" in said and said.endswith("; also better than equal: good2 and good1.")


def test_nothing_told_says_what_could_have_been(record):
    equal = 80.0 + NOISE
    said = told(record, {"equal": equal, "one": equal + 0.2 + NOISE[::-1], "two": equal - 0.1 - NOISE[::-1]})
    assert said.startswith("On digits, no method is shown to be better than equal: one is best by average (80.2), but")
    assert (
        "but this can be chance (5 seeds, Holm p = " in said
        and "; with 5 seeds, a network has to differ from equal by 0.49 to 0.5 points of the average, by its" in said
    )
    assert said.endswith("; two cannot be told from equal.")


def test_the_reference_may_be_the_best(record):
    equal = 80.0 + NOISE
    said = told(record, {"equal": equal, "one": equal - 0.2 + NOISE[::-1], "two": equal - 0.3 - NOISE[::-1]})
    assert "no method is shown to be better than equal, which is best by average (80); with 5 seeds, a network" in said
    assert said.endswith("; the other two cannot be told from equal.")


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_are_no_test(record, seeds):
    said = told(record, {"equal": [80.0, 81.0][:seeds], "one": [85.0, 87.0][:seeds]})
    common = "1 seed" if seeds == 1 else "2 seeds"
    assert f"not tested against equal: {common} in common, 3 are needed" in said and "±" not in said
    said = told(record, {"equal": [90.0, 91.0][:seeds], "one": [85.0, 87.0][:seeds]})
    assert (
        said
        == f"On digits, equal is best by average ({90 + (seeds - 1) / 2:.4g}), nothing is tested against it: "
        + (f"{common} in common, 3 are needed.")
    )


def test_smaller_is_better_and_has_a_unit_of_its_own(record):
    equal = 0.30 + 0.01 * NOISE
    said = told(record, {"equal": equal, "good": equal - 0.1 + 0.001 * NOISE[::-1]}, "abs_err")
    assert "good is best by average (0.2), better than equal by 0.100 (40.6 ± 0.78 log points, 5 seeds" in said


def test_without_a_reference_and_without_a_number(record, board_records):
    assert (
        told(record, {"one": [80.0]}) == "On digits, one is best by average (80); there is no row to test it against."
    )
    board = Leaderboard.from_records(board_records, reference="none")
    assert "getmtl is best by Δ (+4.51 %); there is no row to test it against" in takeaway(board.tables["digits"])
    lost = record("lost", 0, {}, main_metrics={}, higher_is_better={}, status="failed", error="out of memory")
    (table,) = Leaderboard.from_records([lost]).tables.values()
    assert takeaway(table) == "On digits, no run has reported a metric; 1 of 1 runs did not finish (lost)."
    assert caption(table) == "No results on digits"


def test_names_are_not_escaped(record):
    assert "<b>|$x$" in told(record, {"<b>|$x$": [80.0]})


def test_a_p_value_just_above_the_threshold_is_told_it(record):
    equal = 80.0 + NOISE
    said = told(record, {"equal": equal, "one": equal + 0.55 + 1.4 * NOISE[::-1]})
    p_value = float(said.partition("Holm p = ")[2].partition(",")[0])
    assert 0.045 <= p_value < 0.1 and f"Holm p = {p_value:.2g}, above the threshold of 0.045)" in said


def test_the_legend_names_what_the_average_is_of_and_why_the_threshold_is_below_five_percent(record):
    scores = {"a": {"accuracy": 80.0}, "b": {"accuracy": 90.0}}
    records = [record(method, seed, scores) for method in ("stl", "equal") for seed in range(3)]
    said = legend(next(iter(Leaderboard.from_records(records).tables.values())))
    assert said.startswith("average: test accuracy in %, mean of 2 tasks; ±: half the 95 % interval over 3 seeds; ")
    assert "Holm-corrected, p < 0.045" in said


HARD = np.linspace(-3.0, 3.0, 50)  # what test items add to the replicates of every method


def table_of(record, runs, metric="accuracy", shifts=None, **fields):
    """The table of method -> its scores by seed; `shifts`: method -> what its replicates have beside all others'."""
    records = []
    for method, scores in runs.items():
        for seed, value in enumerate(scores):
            means = (value + HARD + (shifts or {}).get(method, 0.0)).tolist()
            items = None if shifts is None else ItemErrors(means=means, count=fields.get("count", 50))
            records.append(record(method, seed, {"a": {metric: float(value)}}, items=items))
    return next(iter(Leaderboard.from_records(records).tables.values()))


def test_one_prediction_more_in_every_seed_is_not_worse(record):
    """The seeds alone would say so; the interval over test items holds 0."""
    equal = np.array([93.43, 93.27, 93.11])
    items = {"one": HARD / 20}
    found = table_of(record, {"equal": equal, "one": equal - np.array([0.156, 0.157, 0.157])}, shifts=items)
    row = found.rows.loc["one"]
    assert row["p_holm"] < 0.045 and abs(row["difference_average"]) < row["difference_items"]
    assert row["verdict"] == "not distinguishable" and "one cannot be told from equal" in takeaway(found)
    up = table_of(record, {"equal": equal, "one": equal + np.array([0.156, 0.157, 0.157])}, shifts=items)
    assert "but other test items could undo it (3 seeds, Holm p = " in takeaway(up)
    assert "; average +0.16 ± 0.17 over test items)" in takeaway(up)


def test_what_test_items_show_and_seeds_do_not_is_undecided(record):
    runs = {"equal": [80.0, 83.0, 79.0], "up": [86.0, 84.0, 83.5], "down": [70.0, 80.0, 76.0]}
    found = table_of(record, runs, shifts={"up": 0.1 * HARD, "down": 0.1 * HARD})
    assert found.rows["verdict"][["up", "down"]].tolist() == ["undecided"] * 2
    said = takeaway(found)
    assert "up is best by average (84.5), but it is undecided: test items tell it from equal, seeds do not (" in said
    assert said.endswith("; undecided against equal: down.") and "cannot be told from" not in said
    assert "undecided: seeds and test items do not agree" in legend(found)


def test_five_times_the_error_is_worse_however_noisy_the_baseline(record):
    """The relative gains of a noisy baseline hide it from a t-test; logarithms do not."""
    runs = {
        "stl": [0.10, 0.35, 0.18],
        "equal": [0.203, 0.21, 0.195],
        "network": [0.21, 0.2, 0.2],
        "constant": [1.012, 1.0, 1.02],
    }
    found = table_of(record, runs, "abs_err")
    assert found.order == "delta_i" and found.rows["verdict"]["constant"] == "worse"
    scores = found.by_seed(found.runs["delta_i"])
    assert paired_tests(scores, "equal")["verdict"]["constant"] == "not distinguishable", "as relative gains"
    assert "errors as log ratios" in legend(found) and "log points of Δ" in legend(found)
    assert found.signs(["delta_i", "a.abs_err"], "equal").loc["constant"].tolist() == [-1, -1]


def test_many_tasks_are_tested_without_a_warning(record):
    tasks = [f"t{number}" for number in range(300)]
    records = [record(method, seed, {task: {"accuracy": 90.0 + seed + shift} for task in tasks})
               for method, shift in (("equal", 0), ("mgda", 1)) for seed in range(3)]  # fmt: skip
    table = Leaderboard.from_records(records).tables["digits"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        signs = table.signs([f"{task}.accuracy" for task in tasks], "equal")
    assert signs.shape == (2, 300)


def test_floors_do_not_count_in_the_difference_that_seeds_show(record):
    """A row whose seeds scatter raises the most, never the least."""
    equal = 80.0 + NOISE
    networks = {"equal": equal, "one": equal + 0.1 * NOISE[::-1]}
    alone = table_of(record, networks).detectable
    wide = {"linear": equal + 30 * NOISE[::-1], "constant": equal - 30 * NOISE[::-1]}
    with_floors = table_of(record, networks | wide).detectable
    assert alone[0] == alone[1] and with_floors[0] == with_floors[1] < 2 * alone[0]
    least, most = table_of(record, networks | {"wide": wide["linear"]}).detectable
    assert least < 2 * alone[0] and most > 50 * alone[0]


def test_a_difference_that_is_shown_is_no_smaller_than_what_the_page_says_is_needed(record):
    """One row barely scatters and differs by little, the floors and another row scatter widely."""
    equal = 80.0 + NOISE
    steady = {"equal": equal, "steady": equal + 0.4 + 0.02 * NOISE[::-1], "wild": equal + 20 * NOISE[::-1]}
    found = table_of(record, steady | {"linear": equal + 60 * NOISE[::-1]})
    said = f"{takeaway(found)} {legend(found)}"
    assert found.rows["verdict"]["steady"] == "better" and "better than equal by 0.40 ± 0.01 points" in said
    needed = said.partition("a network has to differ from equal by ")[2]
    assert float(needed.split()[0]) <= 0.4 < float(needed.split()[2]), needed


def test_a_row_that_repeats_the_reference_is_not_the_best(record):
    equal = 80.0 + NOISE
    again = {"again": equal, "equal": equal, "worse": equal - 3 + 0.1 * NOISE[::-1]}
    found = table_of(record, again)
    assert found.repeats == ("again",)
    assert takeaway(found).startswith("On digits, no method is shown to be better than equal, which is best by average")
    alone = Leaderboard({"digits": found}).only(["again"]).tables["digits"]
    assert takeaway(alone) == "On digits, again repeats equal."


def test_networks_below_a_floor_are_said_first(record):
    equal = 80.0 + NOISE
    below = told(record, {"equal": equal, "mine": equal - 1, "linear": 83 + 0 * NOISE, "constant": 50 + 0 * NOISE})
    assert below == (
        "On digits, every network lies below the linear floor: train longer or tune before comparing; of the networks, "
        "equal is best by average (80); better than equal: linear; worse than equal: constant; mine cannot be told "
        "from equal."
    )
    alike = told(record, {"equal": equal, "mine": equal - 1, "linear": equal + 2})
    assert "better than equal, which of the networks is best by average (80)" in alike
    level = told(record, {"equal": equal, "mine": equal - 1, "constant": equal})
    assert level.startswith("On digits, no network lies above the constant floor, equal at its level: train longer or")
    above = told(record, {"equal": equal, "mine": equal - 5, "linear": equal - 2, "constant": equal - 20})
    assert "lies below" not in above and "; below the linear floor: mine; " in above


def test_nothing_to_compare_is_said_alone(record):
    zeros = table_of(record, {method: [0.0] * 3 for method in ("stl", "equal", "mine", "constant")})
    assert takeaway(zeros) == "On digits, all 4 methods are equal in the average (0): no order."
    assert not any(column.marked("best") for column in columns(zeros))
    one = table_of(record, {"equal": [0.0, 0.0, 0.0], "mine": [100.0] * 3}, shifts={}, count=1)
    assert takeaway(one) == "On digits, 1 test item: nothing to compare."
    assert one.rows["verdict"]["mine"] == "not distinguishable"


def test_two_seeds_have_no_interval(record):
    rows = table_of(record, {"equal": [81.5, 99.0], "mine": [70.0, 71.0]}).rows
    assert rows["average_ci"].isna().all() and rows["average"]["equal"] == 90.25
