import io
import json
import math

import numpy as np
import pandas as pd
import pytest
from report_records import page
from rich.console import Console

from mtlscale.api.mlflow_rows import _numbers
from mtlscale.config import UserError
from mtlscale.metrics import delta_flat, delta_i, delta_main, relative_error, safeness
from mtlscale.records import Epoch, ItemErrors, RunRecord
from mtlscale.report import write_report
from mtlscale.report.charts.chart import ChartText
from mtlscale.report.charts.scores import leaderboard_charts
from mtlscale.report.columns.shown import columns
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sections.glossary import glossary
from mtlscale.report.stats.statistics import half_width
from mtlscale.tracking.values import means

DIRECTIONS = {"accuracy": True, "cross_entropy": False, "mIoU": True, "abs_err": False}


def rows_of(records, **names):
    board = Leaderboard.from_records(records, **names)
    return next(iter(board.tables.values())).rows


def dense(record, method, seed, iou, error, depth):
    """Segmentation with two metrics, depth with one, in different units."""
    return record(method, seed, {"seg": {"mIoU": iou, "cross_entropy": error}, "depth": {"abs_err": depth}})


def printed(board, width):
    console = Console(width=width, file=io.StringIO())
    console.print(board.to_rich(wide=True))
    return console.file.getvalue()


def unwrapped(text):
    return " ".join(text.split())


def test_means_intervals_and_order(board_records):
    rows = rows_of(board_records)
    assert list(rows.index) == ["getmtl", "equal", "stl", "mgda"]
    averages = np.array([(94 + 84) / 2, (95 + 85.6) / 2, (95.6 + 85) / 2])
    assert rows["average"]["getmtl"] == pytest.approx(averages.mean())
    assert rows["average_ci"]["getmtl"] == pytest.approx(half_width(averages.std(ddof=1), 3))
    assert rows["a.accuracy"]["equal"] == pytest.approx((92 + 93 + 93.5) / 3)
    assert rows["mean_rank"].tolist() == [1, 2, 3, 4]


def test_figures_of_a_run_are_those_of_the_metrics_module(record):
    figures = {
        "stl": [(60.0, 1.0, 0.02), (61.0, 1.1, 0.021)],
        "equal": [(62.0, 0.9, 0.022), (60.5, 1.2, 0.020)],
    }
    records = [dense(record, m, seed, *values) for m, runs in figures.items() for seed, values in enumerate(runs)]
    rows = rows_of(records)
    pairs = [(of.metrics["test"], base.metrics["test"]) for of, base in zip(records[2:], records[:2], strict=True)]
    main = {"seg": "mIoU", "depth": "abs_err"}
    for column, figure in (
        ("delta_i", lambda m, s: delta_i(m, s, DIRECTIONS)),
        ("delta_flat", lambda m, s: delta_flat(m, s, DIRECTIONS)),
        ("delta_main", lambda m, s: delta_main(m, s, DIRECTIONS, main)),
        ("safeness", lambda m, s: safeness(m, s, DIRECTIONS)),
    ):
        assert rows[column]["equal"] == pytest.approx(np.mean([figure(*pair) for pair in pairs]))
    assert rows["delta_i"]["stl"] == 0 and rows["safeness"]["stl"] == 100
    assert rows["average"].isna().all()  # units differ
    assert rows["mean_rank"]["equal"] == pytest.approx((1 + 2) / 2)


def test_errors_relative_to_single_task_models_are_of_the_same_seed(board_records, record):
    def errors(method, seed):
        run = next(run for run in board_records if (run.method, run.seed) == (method, seed))
        return {task: 100 - values["accuracy"] for task, values in run.metrics["test"].items()}

    expected = [relative_error(errors("getmtl", seed), errors("stl", seed)) for seed in range(3)]
    rows = rows_of(board_records)
    assert rows["relative_error"]["getmtl"] == pytest.approx(np.mean(expected))
    assert rows["relative_error"]["stl"] == 1
    perfect = [record(method, 0, {"a": {"accuracy": 100.0}}) for method in ("stl", "equal")]
    assert rows_of(perfect)["relative_error"].isna().all()
    assert rows_of([dense(record, "stl", 0, 60.0, 1.0, 0.02)])["relative_error"].isna().all()


def test_total_error_is_the_sum_of_the_tasks_errors(record):
    runs = [record("stl", seed, {"a": {"error": 4.0 + seed}, "b": {"error": 7.5}}) for seed in range(2)]
    rows = rows_of(runs)
    assert rows["total_error"]["stl"] == pytest.approx(12.0)
    assert "total" in Leaderboard.from_records(runs).to_markdown()
    assert rows_of([dense(record, "stl", 0, 60.0, 1.0, 0.02)])["total_error"].isna().all()


def test_without_a_baseline_run_of_that_seed_its_mean_is_taken(record):
    records = [record("stl", seed, {"a": {"accuracy": value}}) for seed, value in enumerate((80.0, 90.0))]
    records += [record("equal", seed, {"a": {"accuracy": 88.0}}) for seed in (0, 5)]
    expected = [100 * (88 - 80) / 80, 100 * (88 - 85) / 85]
    assert rows_of(records)["delta_i"]["equal"] == pytest.approx(np.mean(expected))


def test_the_loss_beside_the_metrics_does_not_count(board_records):
    rows = rows_of(board_records)
    assert not any("loss" in column for column in rows.columns)
    assert rows["delta_i"].tolist() == pytest.approx(rows["delta_main"].tolist(), nan_ok=True)


def test_without_a_baseline_the_average_decides(board_records):
    board = Leaderboard.from_records([r for r in board_records if r.method != "stl"])
    table = board.tables["digits"]
    assert table.order == "average" and list(table.rows.index) == ["getmtl", "equal", "mgda"]
    assert table.rows["delta_i"].isna().all()
    assert "no finished run of stl" in board.to_markdown()


def test_an_average_of_errors_is_better_when_smaller(record):
    runs = [("good", 1.0), ("bad", 9.0)]
    rows = rows_of([record(method, 0, {"a": {"abs_err": value}}) for method, value in runs])
    assert list(rows.index) == ["good", "bad"]


def test_different_units_and_no_baseline_leave_the_mean_rank(record):
    runs = [("first", (70.0, 1.0, 0.01)), ("second", (60.0, 1.0, 0.02))]
    board = Leaderboard.from_records([dense(record, method, 0, *values) for method, values in runs[::-1]])
    assert board.tables["digits"].order == "mean_rank"
    assert list(board.tables["digits"].rows.index) == ["first", "second"]
    assert "first is best by mean rank (1)" in printed(board, 100)


def test_unfinished_runs_stay_visible_and_count_in_no_mean(board_records):
    board = Leaderboard.from_records(board_records)
    rows = board.tables["digits"].rows
    assert rows.loc["mgda", ["finished", "failed", "diverged"]].tolist() == [2, 1, 1]
    assert rows["average"]["mgda"] == pytest.approx((89 + 79 + 90 + 80) / 4)
    for text in (board.to_markdown(), unwrapped(printed(board, 120))):
        assert "2/4, 1 failed, 1 diverged" in text
        assert "loss is NaN" in text and "worker died" in text
        assert "2 of 13 runs did not finish (mgda)" in text


def test_a_method_without_a_finished_run_comes_last(record):
    records = [record("stl", 0, {"a": {"accuracy": 90.0}}), record("equal", 0, {"a": {"accuracy": 80.0}})]
    lost = record("lost", 0, {}, main_metrics={}, higher_is_better={}, status="failed", error="out of memory")
    rows = rows_of([lost, *records])
    assert list(rows.index) == ["stl", "equal", "lost"]
    assert math.isnan(rows["average"]["lost"]) and rows["failed"]["lost"] == 1


def test_nothing_but_failures_is_a_table_too(record):
    lost = record("lost", 0, {}, main_metrics={}, higher_is_better={}, status="failed", error="out of memory")
    board = Leaderboard.from_records([lost])
    assert "1 of 1 runs did not finish (lost)" in unwrapped(printed(board, 80))
    assert "out of memory" in board.to_markdown()


def test_a_run_without_metrics_is_a_table_too(record):
    board = Leaderboard.from_records([record("equal", 0, {})])
    assert "no run has reported a metric" in printed(board, 80)


def test_no_record_at_all_is_a_users_mistake():
    with pytest.raises(UserError, match="no runs to report"):
        Leaderboard.from_records([])


def test_a_baseline_value_of_zero_is_said_and_leaves_the_average(record):
    runs = [("stl", 0.0, 0), ("stl", 0.0, 1), ("equal", 1.0, 0), ("equal", 1.0, 1)]
    records = [record(method, seed, {"a": {"abs_err": value}}) for method, value, seed in runs]
    board = Leaderboard.from_records(records)
    assert board.tables["digits"].rows["delta_i"].isna().all()
    assert board.tables["digits"].order == "average"
    assert "no Δ: abs_err of a is 0 for stl" in board.to_markdown()


def test_a_run_done_again_counts_once(record):
    old, new = (record("equal", 0, {"a": {"accuracy": value}}, run_id=str(value)) for value in (10.0, 90.0))
    board = Leaderboard.from_records([old, new])
    rows = board.tables["digits"].rows
    assert rows["average"]["equal"] == 90 and rows["finished"]["equal"] == 1
    assert "1 older run with other settings left out" in board.to_markdown()
    assert "older" not in Leaderboard.from_records([new, new]).to_markdown()


def test_verdicts_name_the_reference(board_records):
    board = Leaderboard.from_records(board_records)
    rows = board.tables["digits"].rows
    assert rows["verdict"].to_dict() == {
        "getmtl": "better",
        "equal": "",
        "stl": "worse",
        "mgda": "undecided",
    }
    assert "getmtl is best by Δ" in board.to_markdown()
    assert "better than equal by " in board.to_markdown()
    swapped = Leaderboard.from_records(board_records, reference="getmtl").to_markdown()
    assert "no method is shown to be better than getmtl, which is best by Δ" in swapped


def test_names_are_found_in_any_case(board_records):
    table = Leaderboard.from_records(board_records, baseline="STL", reference="Equal").tables["digits"]
    assert (table.baseline, table.reference) == ("stl", "equal")


def test_costs_are_ratios_to_the_reference(record):
    fast = record("equal", 0, {"a": {"accuracy": 90.0}}, train_seconds=2.0, steps=100)
    slow = record("mgda", 0, {"a": {"accuracy": 91.0}}, train_seconds=3.0, steps=100, counters={"clamps": 3, "none": 0})
    board = Leaderboard.from_records([fast, slow])
    rows = board.tables["digits"].rows
    assert rows["step_ratio"].to_dict() == {"equal": 1.0, "mgda": 1.5}
    assert rows["samples_per_second"]["mgda"] == pytest.approx(6400 / 3)
    assert rows["counter.clamps"]["mgda"] == 3
    assert "clamps 3" in board.to_markdown() and "none 0" not in board.to_markdown()


def test_chosen_and_last_epoch_stand_beside_each_other(record):
    run = record("equal", 0, {"a": {"accuracy": 90.0}}, last={"test": {"a": {"accuracy": 88.0}}})
    rows = rows_of([run])
    assert (rows["average"]["equal"], rows["last"]["equal"]) == (90.0, 88.0)


def heads(table):
    return [(column.header, column.help) for column in columns(table)]


def test_of_a_transfer_the_last_step_stands_marked_beside_the_choice(record):
    last = {"test": {"a": {"accuracy": 91.0}}}
    moved = record("mgda", 0, {"a": {"accuracy": 90.0}}, last=last, domains=["shop", "street"])
    board = Leaderboard.from_records([moved])
    table = board.tables["digits"]
    found = [column.header for column in columns(table)]
    assert found[:2] == ["average", "last step"] and "last epoch" not in found
    assert "of the source" in columns(table)[0].help
    assert table.rows.loc["mgda", "last"] == 91.0 and "last" in board.to_csv().splitlines()[0].split(",")
    assert "last step" in printed(board, 60) and "last step" in glossary([table], heads(table))
    assert json.loads(board.report([moved]).text("json"))["tables"][0]["domains"] == ["shop", "street"]
    assert means(moved)["last_step.test.mean"] == 91.0
    assert _numbers(table, table.rows.loc["mgda"])["last_step.test.mean"] == 91.0


def test_of_no_transfer_nothing_says_last_step(record):
    other = record("mgda", 0, {"a": {"accuracy": 90.0}})
    text = other.model_dump_json()
    assert "domains" not in text and RunRecord.model_validate_json(text) == other.model_copy(update={"epochs": []})
    table = Leaderboard.from_records([other]).tables["digits"]
    assert "last step" not in {header for header, _ in heads(table)} | set(glossary([table], heads(table)))
    assert set(means(other)) == {"test.mean"}


def test_figures_that_are_not_numbers_are_missing(record):
    runs = [record("equal", seed, {"a": {"accuracy": value}}) for seed, value in enumerate((90.0, math.inf, math.nan))]
    rows = rows_of(runs)
    assert rows["average"]["equal"] == 90.0 and math.isnan(rows["average_ci"]["equal"])


def test_validation_stands_in_where_there_is_no_test_split(record):
    run = record("equal", 0, {"a": {"accuracy": 0.0}}, metrics={"val": {"a": {"accuracy": 70.0}}}, last={})
    table = Leaderboard.from_records([run]).tables["digits"]
    assert table.split == "val" and table.rows["average"]["equal"] == 70.0


def test_csv_round_trip(board_records, record):
    other = [record("stl", 0, {"x": {"mIoU": 50.0}}, dataset="streets, wet"), *board_records]
    board = Leaderboard.from_records(other)
    read = pd.read_csv(io.StringIO(board.to_csv()), keep_default_na=True)
    expected = board.to_pandas()
    assert list(read.columns) == list(expected.columns)
    assert read["dataset"].tolist() == expected["dataset"].tolist()
    numbers = expected.select_dtypes("number").columns
    pd.testing.assert_frame_equal(read[numbers], expected[numbers], check_dtype=False, rtol=0, atol=0)


@pytest.mark.parametrize("width", [80, 100, 120])
@pytest.mark.parametrize("tasks", [2, 14])
def test_terminal_tables_fit_and_hold_every_task(record, width, tasks):
    names = [f"domain{index}" for index in range(tasks)]
    records = [
        record(method, seed, {name: {"accuracy": 80.0 + seed + index} for index, name in enumerate(names)})
        for method in ("stl", "equal", "a method with a fairly long name")
        for seed in range(3)
    ]
    text = printed(Leaderboard.from_records(records), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(name in text for name in names)
    assert "…" not in text and "a method with a fairly long name" in text


def test_few_tasks_stand_beside_the_average_and_many_apart(record):
    def first_header(tasks):
        test = {f"t{index}": {"accuracy": 90.0} for index in range(tasks)}
        lines = Leaderboard.from_records([record("equal", 0, test)]).to_markdown().splitlines()
        return next(line for line in lines if line.startswith("| method"))

    assert "t4" in first_header(5) and "average" in first_header(5)
    assert "t5" not in first_header(6) and "average" in first_header(6)


def test_names_cannot_break_a_markdown_table(record):
    board = Leaderboard.from_records([record("a|b\n<img>", 0, {"a": {"accuracy": 90.0}})])
    row = next(line for line in board.to_markdown().splitlines() if line.startswith("| a"))
    assert r"a\|b \<img>" in row
    assert row.replace(r"\|", "").count("|") == row.count(" |") + 1


ROOMS = {"seg": {"mIoU": 60.0, "error": 20.0}, "depth": {"abs_err": 0.5, "cross_entropy": 1.0}}
BETTER = {"seg": {"mIoU": 66.0, "error": 10.0}, "depth": {"abs_err": 0.4, "cross_entropy": 3.0}}


@pytest.mark.parametrize(
    ("delta", "gains", "said"),
    [
        ({}, [[10, 50], [20, -200]], "Δ, η: mIoU, error, abs_err, cross_entropy relative to stl"),
        ({"": ("mIoU", "abs_err")}, [[10], [20]], "Δ, η: mIoU, abs_err relative to stl"),
        ({"digits": ("seg.error", "abs_err")}, [[50], [20]], "Δ, η: error, abs_err relative to stl"),
        ({"digits": ("mIoU",), "": ("error",)}, [[10]], "Δ, η: mIoU relative to stl"),
    ],
)
def test_what_enters_delta_is_declared_and_said(record, delta, gains, said):
    records = [record("stl", 0, ROOMS), record("equal", 0, BETTER)]
    board = Leaderboard.from_records(records, delta=delta)
    rows = board.tables["digits"].rows
    assert rows["delta_i"]["equal"] == pytest.approx(np.mean([np.mean(of_task) for of_task in gains]))
    assert rows["delta_flat"]["equal"] == pytest.approx(np.mean([gain for of_task in gains for gain in of_task]))
    assert rows["delta_main"]["equal"] == pytest.approx((10 + 20) / 2)
    assert rows["safeness"]["equal"] == pytest.approx(np.mean([100 * np.mean(np.array(g) > 0) for g in gains]))
    for text in (unwrapped(printed(board, 100)), board.to_markdown(), page(records, board, "rooms")):
        assert said in text


def test_a_metric_outside_delta_may_be_zero(record):
    zero = {**ROOMS, "depth": {**ROOMS["depth"], "cross_entropy": 0.0}}
    records = [record("stl", 0, zero), record("equal", 0, BETTER)]
    assert "no Δ: cross_entropy of depth is 0" in Leaderboard.from_records(records).to_markdown()
    board = Leaderboard.from_records(records, delta={"": ("mIoU", "abs_err")})
    assert "no Δ" not in board.to_markdown() and board.tables["digits"].rows["delta_i"]["equal"] == pytest.approx(15)


def test_a_metric_in_delta_that_nobody_measures_is_a_users_mistake(record):
    records = [record("stl", 0, ROOMS), record("stl", 0, {"a": {"accuracy": 90.0}}, dataset="texts")]
    for delta, said in (
        ({"digits": ("abs_er",)}, "delta of digits: no task reports 'abs_er': did you mean abs_err"),
        ({"": ("mIoU", "accurat", "accuracy")}, "delta: no task reports 'accurat': did you mean accuracy"),
        ({"": ("mIoU",)}, "delta: texts reports none of mIoU; give it a delta of its own"),
    ):
        with pytest.raises(UserError, match=said):
            Leaderboard.from_records(records, delta=delta)
    assert Leaderboard.from_records(records, delta={"": ("mIoU", "accuracy")}).tables.keys() == {"digits", "texts"}


def test_the_metrics_that_the_papers_tables_have_are_those_of_the_pipelines(record):
    """NYUv2 without the root mean square error of depth; a task the pipeline says nothing of, with its main metric."""
    names = {"miou": True, "pixel_accuracy": True, "abs_err": False, "rel_err": False, "rmse": False, "mae": False}
    test = {
        "segmentation": {"miou": 50.0, "pixel_accuracy": 70.0},
        "depth": {"abs_err": 0.4, "rel_err": 0.2, "rmse": 0.6},
        "edges": {"mae": 0.1, "rmse": 0.2},
    }
    fields = {"spec": {"dataset": {"name": "nyuv2"}}, "higher_is_better": names}
    table = Leaderboard.from_records([record("stl", 0, test, **fields)]).tables["digits"]
    assert table.entered == "miou, pixel_accuracy, abs_err, rel_err, mae"
    chosen = Leaderboard.from_records([record("stl", 0, test, **fields)], delta={"": ("depth.rmse",)})
    assert chosen.tables["digits"].entered == "rmse of depth"


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        (1, "with one seed no difference can be shown"),
        (2, "with 2 seeds no difference can be shown"),
        # t of 2 degrees of freedom beyond which 0.045 / 2 lie, for stl is found: by the deviations 0.702 and 1, by √3
        (3, f"a network has to differ from equal by {4.551 * 0.702 / 3**0.5:.2g} to {4.551 / 3**0.5:.2g} points of"),
    ],
)
def test_the_smallest_difference_that_could_be_shown(record, seeds, said):
    accuracy = {"stl": (100.0, 100.0, 100.0), "equal": (90.0, 91.0, 92.0), "a": (91.0, 92.8, 92.4)}
    records = [
        record(m, seed, {"x": {"accuracy": v}})
        for m, values in accuracy.items()
        for seed, v in enumerate(values[:seeds])
    ]
    board = Leaderboard.from_records(records)
    assert said in board.to_markdown() and said in unwrapped(printed(board, 100))


def test_methods_that_never_left_equal_weighting_are_marked(record, tmp_path):
    def run(method, seed, departure, **fields):
        return record(method, seed, {task: {"accuracy": 90.0 + seed} for task in "ab"}, departure=departure, **fields)

    kappa = [
        Epoch(epoch=1, train_loss={}, seconds=0.1, traces={"kappa": value}, weights={"a": 0.5, "b": 0.5})
        for value in (0.0002, 0.0005)
    ]
    records = [
        *(run("equal", seed, 0.0) for seed in range(2)),
        *(run("getmtl", seed, 0.003 - 0.001 * seed, epochs=kappa) for seed in range(2)),
        *(run("mgda", seed, 0.002 if seed else 0.4) for seed in range(2)),
        *(run("cagrad", seed, None if seed else 0.002) for seed in range(2)),
    ]
    board = Leaderboard.from_records(records)
    assert board.tables["digits"].idle == ("getmtl",)
    alone = [run.model_copy(update={"main_metrics": {"a": "accuracy"}}) for run in records]
    assert Leaderboard.from_records(alone).tables["digits"].idle == ()  # nothing to balance
    note = "≈ getmtl never left equal weighting: weights within 0.3 % of 1/T (κ at most 0.0005), as those of equal"
    html = write_report(records, tmp_path, "idle")["html"].read_text(encoding="utf-8")
    for text in (board.to_markdown(), unwrapped(printed(board, 100)), html):
        assert note in text and "getmtl ≈" in text and "mgda ≈" not in text and "cagrad ≈" not in text
    departure = pd.read_csv(io.StringIO(board.to_csv())).set_index("method")["departure"]
    assert departure["getmtl"] == 0.003 and departure["mgda"] == 0.4 and math.isnan(departure["cagrad"])


def test_equal_weights_that_do_not_sum_to_one_are_another_training(record):
    """Ascent, a thousandfold step and the sum of the losses keep all tasks alike, too; `stl` shares nothing."""

    def run(method, weight, *, balancer=None, architecture="hps", **fields):
        epochs = [Epoch(epoch=1, train_loss={}, seconds=0.1, weights=dict.fromkeys("ab", weight))]
        spec = {"architecture": {"name": architecture}, "balancer": {"name": balancer or method}, "seed": 0}
        test = {task: {"accuracy": 90.0} for task in "ab"}
        return record(method, 0, test, spec=spec, epochs=epochs, departure=0.0, **fields)

    records = [
        run("stl", 1.0, balancer="equal", architecture="stl", shared_parameters=0),
        run("sum", 1.0, balancer="equal"),
        run("mmoe", 0.5, balancer="equal", architecture="mmoe"),
        run("equal", 0.5),
        run("uncertainty", 0.5),
        run("ascent", -0.5),
        run("thousand", 500.0),
        run("pcgrad", 1.0),
        run("cross_stitch+mgda", 0.5, balancer="mgda", architecture="cross_stitch"),
    ]
    records[1].spec["balancer"]["reduction"] = "sum"
    table = Leaderboard.from_records(records).tables["digits"]
    assert table.idle == ("uncertainty", "cross_stitch+mgda")
    assert [note for note in table.notes if "weight" in note] == [
        "≈ uncertainty never left equal weighting: weights within 0.0001 % of 1/T, as those of equal",
        "ascent gave all tasks the same weight, but its weights sum to −1, not 1",
        "thousand gave all tasks the same weight, but its weights sum to 1000, not 1",
        "pcgrad gave all tasks the same weight, but its weights sum to 2, not 1",
        "≈ cross_stitch+mgda never left equal weighting: weights within 0.0001 % of 1/T",
    ]
    unknown = [run.model_copy(update={"weight_sums": []}) for run in records]
    assert Leaderboard.from_records(unknown).tables["digits"].idle == (), "no weights are recorded"


def test_the_picture_names_methods_that_never_left_equal_weighting(record):
    test = {task: {"accuracy": 90.0} for task in "ab"}
    records = [record(m, 0, test, departure=0.0) for m in ("equal", "getmtl")]
    [chart] = leaderboard_charts(Leaderboard.from_records(records).tables.values())
    assert chart.panels[0].y.ticks == {"equal": "equal", "getmtl": "getmtl ≈"}


def test_intervals_over_test_items_stand_beside_those_over_seeds(record):
    """By hand: replicates of two seeds are averaged first; what both methods find hard falls out of the difference."""
    hard = np.array([-3.0, 1.0, 2.0])

    def run(method, seed, value, own):
        return record(method, seed, {"a": {"accuracy": value}}, items=ItemErrors(means=(value + hard + own).tolist()))

    own = [np.array([0.1, -0.1, 0.0]), np.array([0.3, 0.1, -0.4])]
    old = [record("old", seed, {"a": {"accuracy": 88.0}}) for seed in range(2)]  # of an earlier version
    runs = [run("equal", 0, 90.0, 0), run("equal", 1, 91.0, 0), run("up", 0, 92.0, own[0]), run("up", 1, 94.0, own[1])]
    board = Leaderboard.from_records([*runs, *old])
    rows = board.tables["digits"].rows
    assert rows["average_items"]["equal"] == pytest.approx(1.96 * hard.std(ddof=1))
    assert rows["difference_average"]["up"] == pytest.approx(2.5)
    assert rows["difference_items"]["up"] == pytest.approx(1.96 * ((own[0] + own[1]) / 2).std(ddof=1))
    assert rows.loc["old", ["average_items", "difference_items"]].isna().all()
    for text in (board.to_markdown(), printed(board, 120)):
        assert "average ± seeds" in text and "± items" in text and "+2.50 ± 0.39" in text
    assert "± items: the same over the test items" in board.to_markdown()
    assert "items" not in Leaderboard.from_records(old).to_markdown()


def test_a_part_of_test_stands_beside_the_whole(record):
    def run(method, seed, whole, part):
        found = record(method, seed, {"a": {"accuracy": whole}, "b": {"accuracy": whole}})
        return found.model_copy(
            update={"metrics": {**found.metrics, "test_unseen": {t: {"accuracy": part} for t in ("a", "b")}}}
        )

    records = [run(m, s, 90.0 + s, v + s) for m, v in (("stl", 80.0), ("equal", 85.0)) for s in range(2)]
    board = Leaderboard.from_records(records)
    assert board.tables["digits"].rows["part"].to_dict() == {"equal": 85.5, "stl": 80.5}
    html = page(records, board, "part")
    for text in (board.to_markdown(), printed(board, 120), html):
        assert "test_unseen" in text and "85.50" in text
    whole_alone = [record("stl", 0, {"a": {"accuracy": 90.0}})]
    assert "test_unseen" not in Leaderboard.from_records(whole_alone).to_markdown()


@pytest.mark.parametrize(("floor", "squeezed"), [(50.0, False), (89.0, True)])
def test_a_floor_that_is_far_off_does_not_squeeze_the_picture(record, floor, squeezed):
    scores = {"stl": 90.0, "equal": 91.0, "constant": floor}
    records = [record(m, s, {"a": {"accuracy": v + 0.1 * s}}) for m, v in scores.items() for s in range(2)]
    [chart] = leaderboard_charts(Leaderboard.from_records(records).tables.values())
    panel = chart.panels[0]
    assert ("◂" in [text.text for text in panel.of(ChartText)]) == (panel.x.limits != (None, None)) == (not squeezed)
    if panel.x.limits != (None, None):
        low, high = panel.x.limits
        assert low > floor and high > 91.0
