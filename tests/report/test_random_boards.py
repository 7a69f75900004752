"""Random leaderboards: no sentence, verdict, mark or colour contradicts a number beside it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from mtlscale.records import Epoch, ItemErrors, RunRecord
from mtlscale.report.cells.sheet import Column
from mtlscale.report.columns.shown import columns
from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.rendered import Report
from mtlscale.report.sections.first_screen import definitions
from mtlscale.report.stats.ties import tied
from mtlscale.report.tables.caveats import legend
from mtlscale.report.tables.table import Table
from mtlscale.report.tables.takeaway import takeaway

FLOORS = ("constant", "linear")
METHODS = ("equal", "again", "stl", "getmtl", "mgda", "pcgrad", "uncertainty", *FLOORS)  # again: equal's figures
METRICS = {"scores": ("accuracy",), "errors": ("abs_err",), "both": ("accuracy", "cross_entropy")}
MARGIN = 0.01


@st.composite
def boards(draw: st.DrawFn) -> dict[str, Any]:
    """The shape of a leaderboard; its numbers follow from `draw`."""
    return {
        "methods": draw(st.lists(st.sampled_from(METHODS), min_size=2, max_size=8, unique=True).map(_equal_first)),
        "seeds": draw(st.integers(1, 5)),
        "tasks": draw(st.integers(1, 4)),
        "kind": draw(st.sampled_from([*METRICS, "unlike"])),
        "values": draw(st.sampled_from(["apart", "alike", "tied", "equal", "zeros", "huge", "shifted"])),
        "items": draw(st.sampled_from(["none", "wide", "narrow", "one"])),
        "weights": draw(st.sampled_from(["equal", "negative", "thousand", "apart"])),
        "missing": draw(st.booleans()),
        "draw": draw(st.integers(0, 2**32 - 1)),
    }


def _equal_first(methods: list[str]) -> list[str]:
    """Return the methods with "again" after the "equal" whose figures it has."""
    return [*(m for m in methods if m != "again"), *(m for m in methods if m == "again")]


def records_of(record: Callable[..., RunRecord], board: dict[str, Any]) -> list[RunRecord]:
    rng = np.random.default_rng(board["draw"])
    tasks = [f"task{number}" for number in range(board["tasks"])]
    level, hard = rng.uniform(5, 60), rng.normal(0, 3, 40)
    by_task = {"unlike": [("accuracy",), ("abs_err",)]}.get(board["kind"], [METRICS.get(board["kind"], ())])

    records = []
    for method in board["methods"]:
        own = {"apart": 5.0, "alike": 0.05, "shifted": 1.0}.get(board["values"], 1.0) * rng.normal()
        factor, shift = 10.0 ** rng.uniform(-3, 3), rng.integers(-2, 3)
        for seed in range(board["seeds"]):
            tests: dict[str, dict[str, float]] = {}
            if method == "again" and (twins := [run for run in records if (run.method, run.seed) == ("equal", seed)]):
                again = twins[0].model_copy(update={"method": "again", "items": None})
                records.append(again)
                continue
            for number, task in enumerate(tasks):
                value = level + number + own + rng.normal(0, 0.5)
                value = {
                    "equal": level,
                    "zeros": 0.0,
                    "tied": float(np.round(value / 5) * 5),
                    "huge": level * factor * 10.0 ** rng.normal(0, 0.5),
                    "shifted": level + seed + shift / 4,
                }.get(board["values"], value)
                names = by_task[number % len(by_task)]
                tests[task] = {name: value / (1 if name == "accuracy" else 50) for name in names}
            if board["missing"] and rng.random() < 0.1:
                tests[tasks[0]] = dict.fromkeys(tests[tasks[0]], float("nan"))
            records.append(_run(record, board, method, seed, tests, hard, rng))
    return records


def _run(
    record: Callable[..., RunRecord],
    board: dict[str, Any],
    method: str,
    seed: int,
    tests: dict[str, dict[str, float]],
    hard: np.ndarray,
    rng: np.random.Generator,
) -> RunRecord:
    fields: dict[str, Any] = {}
    mains = {next(iter(values)): None for values in tests.values()}
    if board["items"] != "none":
        mean = np.mean([next(iter(values.values())) for values in tests.values()])
        noise = rng.normal(0, 1.0 if board["items"] == "wide" else 0.01, len(hard))
        means = (mean + 0.0 * hard if board["items"] == "one" else mean + hard + noise).tolist()
        count = 1 if board["items"] == "one" else 50
        fields["items"] = ItemErrors(means=means if len(mains) == 1 else [], **({"count": count} if count == 1 else {}))

    share = 1.0 / len(tests)
    scale = {"negative": -1.0, "thousand": 1000.0}.get(board["weights"], 1.0) if method != "equal" else 1.0
    weights = dict.fromkeys(tests, scale * share)
    if board["weights"] == "apart":
        weights[next(iter(weights))] *= 1.5
    off = np.abs(np.array(list(weights.values())) / sum(weights.values()) * len(weights) - 1.0).max()
    epochs = [Epoch(epoch=1, train_loss={}, seconds=0.1, weights=weights)]
    return record(method, seed, tests, epochs=epochs, departure=float(off), **fields)


@settings(max_examples=50, deadline=None)
@given(board=boards())
def test_no_sentence_contradicts_a_number_beside_it(record: Callable[..., RunRecord], board: dict[str, Any]) -> None:
    records = records_of(record, board)
    table = Leaderboard.from_records(records).tables["digits"]
    said = takeaway(table)

    shown = columns(table)

    check_verdicts(table)
    check_best(table, said, shown)
    check_detectable(table, f"{said} {legend(table)}")
    check_repeats(table, said)
    check_first_screen(table)
    check_equal_weights(table, records)
    check_colours(table, shown)
    for column in ("average", "delta_i"):
        few = table.rows["finished"] < 3
        assert table.rows.loc[few, f"{column}_ci"].isna().all(), "two seeds have no interval"
    if board["items"] == "one":
        assert "1 test item: nothing to compare" in said and "best" not in said
        assert not set(table.rows["verdict"]) & {"better", "worse"}


def check_verdicts(table: Table) -> None:
    """Better and worse have the sign of both differences shown, and both intervals exclude 0."""
    towards = 1.0 if table.higher(table.order) else -1.0
    towards_average = 1.0 if table.main_metrics and table.higher("average") else -1.0
    for method, row in table.rows.iterrows():
        items_exclude = abs(row["difference_average"]) > row["difference_items"]
        if row["verdict"] in ("better", "worse"):
            side = 1.0 if row["verdict"] == "better" else -1.0
            assert side * towards * row["difference"] > 0, method
            assert row["p_holm"] < 0.045, method
            if not np.isnan(row["difference_items"]):
                assert items_exclude and side * towards_average * row["difference_average"] > 0, method
        elif row["verdict"] == "not distinguishable" and table.test_items != 1:
            assert not items_exclude, f"{method}: the test items tell it from the reference"


def check_best(table: Table, said: str, shown: list[Column]) -> None:
    """The best is the best row, and no floor while there are networks; where a floor leads, that is said first."""
    scores = tied(table.rows[table.order].dropna())
    named = re.findall(r"(\w+)(?:, which(?: of the networks)?)? is best by", said)
    if len(scores) > 1 and scores.nunique() == 1:
        assert not named, "nothing is ranked where all are equal"
        assert not any(column.marked("best") for column in shown if column.name == table.order)
        return
    if not named:
        return

    [best] = named
    towards = 1.0 if table.higher(table.order) else -1.0
    networks = scores.drop(index=list(FLOORS), errors="ignore")
    assert best in networks.index or networks.empty
    others = scores.drop(index=list(table.repeats), errors="ignore")
    highest = (others * towards).max() == scores[best] * towards
    assert highest or "of the networks" in said
    rivals = networks.drop(index=list(table.repeats), errors="ignore") if len(networks) else others
    assert scores[best] == (rivals * towards).max() * towards

    floors = scores.drop(index=networks.index)
    if networks.empty or floors.empty:
        assert "floor" not in said
        return
    gaps = {floor: towards * (scores[floor] - networks) for floor in floors.index}
    below_all = [floor for floor, gap in gaps.items() if (gap > 0).all()]
    assert ("every network lies below the" in said) == bool(below_all), "networks below a floor prove nothing"
    for floor in re.findall(r"every network lies below the (\w+) floor: train longer or tune before comparing", said):
        assert floor in below_all


def check_detectable(table: Table, said: str) -> None:
    """No difference of a network that is called real lies below what the page says is needed, none left open above."""
    differing = re.findall(
        r"with (\d+) seeds, a network has to differ from (\w+) by (?:about |at least )?([\d.e+-]+)"
        r"(?: to ([\d.e+-]+))?[ ;,.]",
        said,
    )
    assert len(set(differing)) <= 1, "one figure on a page"
    if not differing:
        return
    seeds, reference, least, most = differing[0]
    assert reference == table.reference and int(seeds) == table.shared_seeds

    gains = table.by_seed(table.tested(table.order))
    differences = gains.drop(columns=table.reference).sub(gains[table.reference], axis=0).mean().abs()
    for method, size in differences.drop(index=list(FLOORS), errors="ignore").items():
        if table.rows["verdict"][method] in ("better", "worse"):
            assert size >= float(least), method
        elif table.rows["p_holm"][method] >= 0.045 and most:
            assert size <= 1.06 * float(most), method  # two digits are shown

    sizes = r"(?:better|worse) than \w+ by ([\d.]+)[^(]*\((?:([\d.]+) ± [\d.]+ log points)?"
    for size, in_logs in re.findall(sizes, said):
        assert float(in_logs or size) >= float(least), "as printed"
    assert not ("no difference can be shown" in said and re.search("(better|worse) than", said))


def check_repeats(table: Table, said: str) -> None:
    """A row that repeats the reference, or that ties with it, is not the best."""
    named = re.findall(r"(\w+)(?:, which(?: of the networks)?)? is best by", said)
    if table.reference is None or not named:
        return
    assert named[0] not in table.repeats
    scores = tied(table.rows[table.order].dropna())
    if table.reference in scores and named[0] != table.reference:
        assert scores[named[0]] != scores[table.reference]
    if "again" in table.rows.index and table.reference == "equal":
        same = table.rows.loc[["again", "equal"], "finished"].nunique() == 1
        assert not same or "again" in table.repeats or "equal" not in scores


def check_first_screen(table: Table) -> None:
    """The first screen fits 80 columns, and has a row for each method."""
    console = Console(width=80, file=io.StringIO())
    for part in Report(tables={table.dataset: table}).printed():
        console.print(part)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(cell_len, lines)) <= 80
    assert {line.split()[0] for line in lines if line.strip()} >= set(table.rows.index)
    assert all(cell_len(line) <= 80 for line in definitions([table]))


def check_equal_weights(table: Table, records: list[RunRecord]) -> None:
    """Marked are methods whose weights are 1/T within the margin, never equal weighting itself."""
    for method in table.idle:
        assert method != "equal"
        for run in records:
            if run.method == method:
                weights = pd.Series(run.epochs[0].weights)
                assert np.allclose(weights * len(weights), 1.0, atol=2 * MARGIN) and abs(weights.sum() - 1) <= MARGIN
    for method, other in re.findall(r"≈ (\w+) never left equal weighting: [^;]*?(?:, as those of|repeats) (\w+)",
                                    legend(table)):  # fmt: skip
        assert method in table.idle and other == "equal"


def check_colours(table: Table, shown: list[Column]) -> None:
    """The column that is tested has the colours of the verdicts, and no other one contradicts its own numbers."""
    for column in shown:
        if not column.tested:
            continue
        gain, loss = ({str(table.rows.index[row]) for row in column.marked(mark)} for mark in ("gain", "loss"))
        if column.name == table.order:
            verdicts = table.rows["verdict"]
            assert gain == set(verdicts.index[verdicts == "better"])
            assert loss == set(verdicts.index[verdicts == "worse"])
        if column.name == "average":
            items = (table.rows["difference_average"].abs() <= table.rows["difference_items"]).to_dict()
            assert not any(items[method] for method in gain | loss)
