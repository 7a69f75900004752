"""Runs of several experiments in one leaderboard: joined where they compare, apart where they do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mtlscale.config import UserError
from mtlscale.records import RunRecord
from mtlscale.report.merge_experiments import ExperimentRecords, RunSelection, gather

Make = Callable[..., RunRecord]


def source(name: str, *records: RunRecord, **fields: Any) -> ExperimentRecords:
    return ExperimentRecords(name=name, location=f"/homes/{name}", records=records, **fields)


@pytest.fixture
def run(record: Make) -> Make:
    """run("a", "equal", 0, 90.0): of experiment a; `lr`, `dataset` options and the like as the spec has them."""

    def make(experiment: str, method: str, seed: int, value: float, **fields: Any) -> RunRecord:
        settings = {"lr": fields.pop("lr", 0.1), "selection": fields.pop("selection", "metric")}
        architecture = "stl" if method == "stl" else fields.pop("architecture", "hps")
        spec = {
            "dataset": {"name": "digits", **fields.pop("options", {})},
            "architecture": {"name": architecture},
            "balancer": {"name": method},
            "training": settings,
            "seed": seed,
        }
        test = fields.pop("test", {"a": {"accuracy": value}, "b": {"accuracy": value - 5}})
        run_id = fields.pop("run_id", f"{experiment}-{method}-{seed}")
        return record(method, seed, test, experiment=experiment, spec=spec, run_id=run_id, **fields)

    return make


def three(run: Make, experiment: str, method: str, value: float, **fields: Any) -> list[RunRecord]:
    return [run(experiment, method, seed, value + seed + seed * value / 1000, **fields) for seed in range(3)]


def tables(*sources: ExperimentRecords, **wanted: Any) -> dict[str, Any]:
    return gather(sources, RunSelection(**wanted)).leaderboard().tables


def test_what_compares_stands_in_one_table(run: Make) -> None:
    base = [*three(run, "a", "stl", 80.0), *three(run, "a", "equal", 81.0)]
    mine = three(run, "b", "mine", 85.0)
    found = tables(source("a", *base), source("b", *mine))
    assert list(found) == ["digits"]
    assert list(found["digits"].rows.index) == ["mine", "equal", "stl"]
    assert "runs of a, b" in found["digits"].notes
    assert found["digits"].rows["verdict"]["mine"] == "better"


def test_a_run_of_two_experiments_counts_once(run: Make) -> None:
    once = three(run, "a", "equal", 81.0)
    again = [record.model_copy(update={"experiment": "b"}) for record in once]
    more = run("b", "equal", 7, 90.0)
    failed = run("b", "equal", 0, 0.0, run_id="a-equal-0", status="failed", metrics={})
    rows = tables(source("a", *once), source("b", *again, more, failed))["digits"].rows
    assert rows.loc["equal", ["finished", "failed"]].tolist() == [4, 0]


def test_one_label_with_two_settings_is_two_rows(run: Make) -> None:
    one = [*three(run, "a", "stl", 80.0), *three(run, "a", "equal", 81.0)]
    other = [*three(run, "b", "stl", 70.0), *three(run, "b", "equal", 91.0, lr=0.5)]
    table = tables(source("a", *one), source("b", *other))["digits"]
    assert set(table.rows.index) == {"stl", "equal (a)", "equal (b)"}
    assert table.rows["finished"]["stl"] == 3  # the same settings: the newer of two runs of a seed counts
    assert table.reference == "equal (a)"
    note = next(note for note in table.notes if "one label" in note)
    assert note == "one label with several settings has a row for each: equal differs in training.lr"
    chosen = tables(source("a", *one), source("b", *other), reference="equal (b)", methods=["equal"])["digits"]
    assert chosen.reference == "equal (b)" and list(chosen.rows.index) == ["equal (b)", "equal (a)"]


def test_floors_are_the_same_whatever_the_training(run: Make) -> None:
    records = [
        source(name, *three(run, name, "linear", 60.0, lr=lr, selection=how, architecture="linear"))
        for name, lr, how in (("a", 0.1, "metric"), ("b", 0.2, "last"))
    ]
    found = tables(*records)
    assert list(found) == ["digits"] and list(found["digits"].rows.index) == ["linear"]


def test_metrics_that_only_one_of_the_joined_experiments_tells_still_keep_others_apart(run: Make) -> None:
    """An experiment whose runs tell no metric joins any; what the other has measured goes on to count."""
    told = three(run, "a", "stl", 80.0)
    untold = three(run, "b", "equal", 81.0, higher_is_better={})
    other = three(run, "c", "mine", 82.0, higher_is_better={"accuracy": True, "f1": True})
    for first in ((source("a", *told), source("b", *untold)), (source("b", *untold), source("a", *told))):
        found = tables(*first, source("c", *other))
        assert len(found) == 2 and list(found["digits (c)"].rows.index) == ["mine"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"fingerprint": "beef"}, "data with fingerprint beef, not f00d"),
        ({"fingerprint": "beef", "options": {"split": 1}}, "split 1, not none"),
        ({"options": {"label_noise": {"share": 0.2}}}, 'label_noise {"share": 0.2}, not none'),
        ({"test": {"a": {"accuracy": 80.0}}}, "tasks a, not a, b"),
        ({"test": {t: {"error": 9.0} for t in "ab"}, "higher_is_better": {"error": False}}, "main metric error"),
        ({"higher_is_better": {"accuracy": True, "f1": True}}, "metrics accuracy, f1, not"),
        ({"selection": "last"}, "epochs chosen by last, not metric"),
    ],
)
def test_what_does_not_compare_stays_apart_and_says_why(run: Make, fields: dict[str, Any], said: str) -> None:
    one = [*three(run, "a", "stl", 80.0), *three(run, "a", "equal", 81.0)]
    other = three(run, "b", "equal", 82.0, **fields)
    gathered = gather([source("a", *one), source("b", *other)])
    found = gathered.leaderboard().tables
    assert list(found) == ["digits (a)", "digits (b)"] and gathered.split_datasets == ("digits",)
    note = next(note for note in found["digits (b)"].notes if note.startswith("kept apart from digits (a): "))
    assert said in note
    assert any(note.startswith("kept apart from digits (b): ") for note in found["digits (a)"].notes)
    assert any("no finished run of stl" in note for note in found["digits (b)"].notes)


def test_data_prepared_anew_do_not_join_the_old_in_one_ledger(run: Make) -> None:
    old = three(run, "a", "stl", 80.0)
    new = three(run, "a", "equal", 81.0, fingerprint="beef")
    found = tables(source("a", *old, *new))
    assert list(found) == ["digits (a)", "digits (a), data beef"]
    assert all(len(table.rows) == 1 for table in found.values())


def test_splits_by_seed_are_one_protocol_and_a_fixed_split_another(run: Make) -> None:
    def split(name: str, seeds: range, by_seed: bool) -> ExperimentRecords:
        def options(seed: int) -> dict[str, Any]:
            return {"options": {"name": "mnist_mtl", "split": seed * by_seed}, "fingerprint": f"f{seed * by_seed}"}

        return source(name, *(run(name, "equal", seed, 80.0 + seed, **options(seed)) for seed in seeds))

    assert list(tables(split("a", range(3), True), split("b", range(3, 6), True))) == ["digits"]
    assert list(tables(split("a", range(3), True), split("b", range(3), False))) == ["digits (a)", "digits (b)"]


def test_settings_of_before_are_left_out_of_a_ledger(run: Make) -> None:
    old = [run("a", "equal", seed, 50.0, lr=9.0, run_id=f"old{seed}", finished="2026-01-01") for seed in range(3)]
    new = [run("a", "equal", seed, 80.0, finished="2026-01-02") for seed in range(2)]
    table = tables(source("a", *old, *new))["digits"]
    assert table.rows["finished"]["equal"] == 2 and table.rows["average"]["equal"] == 77.5
    assert "3 older runs with other settings left out" in table.notes
    kept = tables(source("a", *old[2:], *new, chosen_by_file=True))["digits"]  # the experiment's file has chosen them
    assert kept.rows["finished"]["equal"] == 3


def test_rows_that_are_asked_for_keep_what_they_are_compared_with(run: Make) -> None:
    values = {"stl": 80.0, "equal": 81.0, "mine": 85.0, "other": 70.0}
    everything = source("a", *(record for m, v in values.items() for record in three(run, "a", m, v)))
    whole, asked = tables(everything)["digits"], tables(everything, methods=["MINE"])["digits"]
    assert list(asked.rows.index) == ["mine"] and asked.baseline == "stl" and asked.reference == "equal"
    for column in ("delta_i", "average", "difference", "step_ratio", "p_holm", "mean_rank"):  # no surer than it was
        assert asked.rows[column]["mine"] == whole.rows[column]["mine"]
    assert tables(everything, seeds=[1])["digits"].rows["finished"].tolist() == [1] * 4
    gathered = gather([everything], RunSelection(methods=["mine"]))
    texts = {form: gathered.report(form).text(form) for form in ("markdown", "csv", "latex", "json", "html")}
    assert all("mine" in text for text in texts.values())
    assert "other" not in texts["csv"] + texts["json"]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"methods": ["mein"]}, "--method mein: no run has it: did you mean mine"),
        ({"datasets": ["digit"]}, "--dataset digit: no run has it: did you mean digits"),
        ({"seeds": [9]}, "--seed 9: no run has it: known: 0, 1, 2"),
        ({"reference": "mein"}, "--reference mein: no finished run of it: did you mean mine"),
        ({"baseline": "lost"}, "--baseline lost: no finished run of it: known: mine"),
        ({"metrics": ["acuracy"]}, "--metric acuracy: no task reports it: did you mean accuracy"),
    ],
)
def test_what_nobody_has_is_a_users_mistake(run: Make, wanted: dict[str, Any], said: str) -> None:
    lost = run("a", "lost", 0, 0.0, status="failed", metrics={}, main_metrics={})
    with pytest.raises(UserError, match=said):
        gather([source("a", *three(run, "a", "mine", 80.0), lost)], RunSelection(**wanted))


def test_experiments_that_disagree_on_delta_and_baseline_say_so(run: Make) -> None:
    test = {"a": {"accuracy": 80.0, "error": 20.0}}
    one = source("a", *three(run, "a", "stl", 80.0, test=test), delta={"": ("accuracy",)})
    other = source("b", *three(run, "b", "equal", 80.0, test=test), delta={}, baseline="equal")
    table = tables(one, other)["digits"]
    assert table.entered == "accuracy" and table.baseline == "stl"
    said = "experiments disagree on what enters Δ: accuracy (a); what the pipeline says (b); the first counts"
    assert said in table.notes
    assert "experiments disagree on the baseline: stl, equal; stl counts" in table.notes
    assert tables(one, other, metrics=["error"])["digits"].entered == "error"
    unknown = source("b", *other.records)  # of a ledger whose file nobody has
    assert not any("disagree" in note for note in tables(one, unknown)["digits"].notes)


def test_experiments_of_one_name_are_told_apart_by_their_place(run: Make) -> None:
    here = ExperimentRecords(name="a", location="/homes/x", records=tuple(three(run, "a", "equal", 80.0)))
    there = ExperimentRecords(name="a", location="/homes/y", records=tuple(three(run, "a", "equal", 80.0, lr=0.7)))
    server = ExperimentRecords(
        name="a", location="http://host:5000", records=tuple(three(run, "a", "equal", 80.0, lr=0.8))
    )
    rows = tables(here, there, server)["digits"].rows
    assert set(rows.index) == {"equal (x:a)", "equal (y:a)", "equal (http://host:5000#a)"}
