"""`studies/standing_study.py`: gains, wins, power, null boards, suites that are left out or have changed."""

from __future__ import annotations

import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.config import Experiment, Run, Task, UserError, load_experiment
from mtlscale.config.registry.components import source_hash
from mtlscale.data import PreparedData
from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.records.record import EpochFile, ItemErrors
from mtlscale.training import TaskPredictions, train, write_predictions

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import standing_study as program

Record = Callable[..., RunRecord]
ANALYSIS: dict[str, Any] = yaml.safe_load(program.ANALYSIS.read_text(encoding="utf-8"))
SUITES, METHODS = ("one", "two", "three"), ("stl", "equal", "uncertainty", "mgda", "mmoe", "constant")
SHIFTS = {"stl": -1.0, "mgda": 6.0, "constant": -40.0}


def runs(record: Record, suites: tuple[str, ...] = SUITES) -> list[RunRecord]:
    """Ten seeds, of which mgda gains six points everywhere, uncertainty and mmoe nothing."""
    rng = np.random.default_rng(0)
    return [
        record(
            method,
            seed,
            {task: {"accuracy": 70.0 + SHIFTS.get(method, 0.0) + rng.normal() / 2} for task in "ab"},
            dataset=suite,
            run_id=f"{suite}-{method}-{seed}",
        )
        for suite in suites
        for method in METHODS
        for seed in range(10)
    ]


def rows(suites: tuple[str, ...] = SUITES) -> list[tuple[str, str, int]]:
    return [(suite, method, seed) for suite in suites for method in METHODS for seed in range(10)]


@pytest.fixture(scope="module")
def study(record: Record) -> program.Study:
    return program.study_of(runs(record), ANALYSIS, rows())


def test_who_wins_and_who_does_not(study: program.Study) -> None:
    table = program.method_table(study)
    assert table.index[0] == "mgda" and set(table.index) == {"stl", "uncertainty", "mgda", "mmoe"}
    assert table.loc["mgda", ["better", "worse", "win"]].tolist() == [3, 0, "yes"]
    assert table.loc["uncertainty", ["better", "same", "worse", "win"]].tolist() == [0, 3, 0, ""]
    # Relative to single-task learning of the same seed: 6 points of 69.
    assert table.loc["mgda", "gain"] == pytest.approx(100 * 6 / 69, abs=0.8)
    kinds = table["kind"].to_dict()
    assert (kinds["mgda"], kinds["uncertainty"], kinds["mmoe"]) == ("gradients' Gramian", "losses", "sharing")
    text = program.tables(study)
    assert "constant" not in text and "| mgda |" in text


def test_both_forms_of_a_rule_are_compared_where_both_are(record: Record, tmp_path: Path) -> None:
    """The cheap form loses two points, at half the seconds; one suite is without it, and the others say the same."""
    cheap = "mgda at representation"
    records = [one.model_copy(update={"train_seconds": 4.0, "steps": 100}) for one in runs(record)]
    for one in [one for one in records if one.method == "mgda" and one.dataset != "three"]:
        less = {task: {"accuracy": values["accuracy"] - 2.0} for task, values in one.metrics["test"].items()}
        named = {"method": cheap, "run_id": f"{one.run_id} cheap", "train_seconds": 2.0}
        records.append(one.model_copy(update=named | {"metrics": {**one.metrics, "test": less}}))
    cheap_rows = [(suite, cheap, seed) for suite in SUITES[:2] for seed in range(10)]

    found = program.study_of(records, ANALYSIS, [*rows(), *cheap_rows])
    forms = program.form_table(found)
    assert forms.index.tolist() == ["mgda", "mean of the rules"] and set(forms["suites"]) == {2}
    assert forms["cheap − exact"].tolist() == pytest.approx([-100 * 2 / 69] * 2, abs=0.02)
    assert forms["step, cheap / exact"].tolist() == [0.5, 0.5]
    assert "## Both forms of a gradient" in program.tables(found)
    assert program.kind_of(cheap) == "gradients' Gramian"
    table = program.method_table(found)
    assert table.loc[cheap, ["better", "same", "worse"]].tolist() == [2, 0, 0]
    assert program.gain_table(found).loc[cheap].str.startswith("–").tolist() == [False, False, True]
    assert program.picture(found, tmp_path / "gains.png").stat().st_size > 1000
    assert max(program.null_errors(found, 200)) <= 0.08


def test_trees_stand_beside_the_row_that_is_best_on_test(record: Record) -> None:
    """A forest is five points ahead of mgda, by seed on the second suite less; one suite has no forest."""
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=200), 0.5 * rng.normal(size=200)
    records = [one.model_copy(update={"items": ItemErrors(means=list(75 + common))}) for one in runs(record)]
    for one in [one for one in records if one.method == "mgda" and one.dataset != "three"]:
        more = 5.0 + (one.seed - 4.5) * (one.dataset == "two")
        test = {task: {"accuracy": values["accuracy"] + more} for task, values in one.metrics["test"].items()}
        items = ItemErrors(means=list(80 + common + own))
        named = {"method": "forest", "run_id": f"{one.run_id} forest", "items": items}
        records.append(one.model_copy(update=named | {"metrics": {**one.metrics, "test": test}}))
    forests = [(suite, "forest", seed) for suite in SUITES[:2] for seed in range(10)]

    found = program.study_of(records, ANALYSIS, [*rows(), *forests])
    table = program.floor_table(found)
    assert table.index.tolist() == ["one", "two"] and set(table["best row"]) == {"mgda"}
    assert table["forest − best"].tolist() == pytest.approx([5.0, 5.0])
    by_seed = 2.262 * np.arange(10).std(ddof=1) / np.sqrt(10)  # t with nine degrees of freedom
    assert table["forest: ± seeds"].tolist() == pytest.approx([0.0, by_seed], abs=1e-3)
    assert table["forest: ± items"].tolist() == pytest.approx([1.96 * own.std(ddof=1)] * 2)
    assert "## Trees beside the best row" in program.tables(found)
    assert program.floor_table(program.study_of(runs(record), ANALYSIS, rows())).empty


def test_traits_of_suites_and_what_they_go_with(record: Record) -> None:
    suites = ("one", "two", "three", "four", "five")
    cosines = dict(zip(suites, (0.99, 0.95, 0.9, 0.8, 0.5), strict=True))
    asked = {**ANALYSIS, "conflict": "mgda"}
    changed = []
    for one in runs(record, suites):
        place = suites.index(one.dataset)
        losses = {"train": {"a": {"loss": 0.5}, "b": {"loss": 0.5 * (place + 1)}}}
        metrics = {split: {**values} for split, values in one.metrics.items()} | losses
        if one.method == "mgda":  # gains more where tasks conflict more
            test = {task: {"accuracy": values["accuracy"] + 3 * place} for task, values in metrics["test"].items()}
            metrics["test"] = test
        survival = {"gradient_to_equal": cosines[one.dataset]} if one.method == "mgda" else {}
        changed.append(one.model_copy(update={"metrics": metrics, "survival": survival, "shared_parameters": 64}))

    found = program.study_of(changed, asked, rows(suites))
    assert found.traits["conflict %"].round(6).tolist() == [1.0, 5.0, 10.0, 20.0, 50.0]
    assert found.traits["loss ratio"].tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert set(found.traits["weights a task"]) == {32.0} and set(found.traits["tasks"]) == {2.0}
    when = program.when_table(found)
    assert when.loc["conflict %", "gradients' Gramian"].startswith("+1.00 ")
    assert when.loc["tasks", "gradients' Gramian"] == ""  # the same everywhere


def test_an_ensemble_is_of_the_methods_that_are_best_on_validation(record: Record, tmp_path: Path) -> None:
    """Three that guess well where the others do not: their mean is right everywhere."""
    task = Task(name="a", loss="bce", outputs=1, metrics=("auroc",))
    labels = torch.arange(8).remainder(2)[:, None].float()
    home, records = Home(tmp_path), []
    for place, method in enumerate(("stl", "equal", "mgda", "forest", "constant")):
        logits = torch.where(torch.arange(8)[:, None] // 2 == place, 0.0, 4.0) * (2 * labels - 1)
        values = {split: {"a": {"auroc": 60.0 if method == "constant" else 90.0}} for split in ("val", "test")}
        run = record(method, 0, values["test"], run_id=method)
        run = run.model_copy(update={"metrics": values, "main_metrics": {"a": "auroc"}})
        home.run(method).mkdir(parents=True)
        write_predictions(home.run(method), {"a": TaskPredictions(task, logits, labels)})
        records.append(run)

    (ensemble,) = program.ensembles(records, home)
    assert (ensemble.method, ensemble.seed, ensemble.metrics) == ("ensemble", 0, {"test": {"a": {"auroc": 100.0}}})
    (home.run("stl") / "test_predictions.safetensors").unlink()
    assert list(program.ensembles(records, home)) == []


def test_equal_seconds_leave_a_slow_method_the_epochs_that_end_in_them(record: Record, tmp_path: Path) -> None:
    """A step of mgda takes 2.2 times as long: of ten epochs it has four, in which it gained four points of ten."""
    home, records = Home(tmp_path), []
    for one in runs(record):
        records.append(one.model_copy(update={"spec": {**one.spec, "training": {"selection": "metric"}}}))
        scores = {number: 50.0 + (number if one.method == "mgda" else 0) for number in range(2, 11, 2)}
        epochs = [
            Epoch(
                epoch=number,
                train_loss={},
                val={task: {"accuracy": scores[number], "loss": 0.0} for task in "ab"} if number in scores else {},
                seconds=0.0,
            )
            for number in range(1, 11)
        ]
        home.run(one.run_id).mkdir(parents=True)
        EpochFile(home.run(one.run_id)).take(epochs)
    found = program.study_of(records, ANALYSIS, rows())
    times = {"stl": 1.0, "equal": 2.0, "uncertainty": 1.0, "mgda": 4.4, "mmoe": 24.0}
    costs = pd.DataFrame(
        [(suite, method, time) for suite in SUITES for method, time in times.items()],
        columns=["suite", "method", "milliseconds"],
    )

    seconds = program.equal_seconds(found, records, home, costs)
    assert seconds["epochs"].unstack().loc["one"].to_dict() == {
        "stl": 10, "equal": 10, "uncertainty": 10, "mgda": 4, "mmoe": 0
    }  # fmt: skip
    assert set(seconds.loc[(slice(None), "mgda"), "gain"]) == {20.0}
    assert set(seconds.loc[(slice(None), "mgda"), "within"]) == {8.0}
    assert seconds.loc[("one", "mmoe"), "within"] == 0.0  # measured after the second epoch, the first that there is

    seconds.to_csv(tmp_path / program.SECONDS)
    again = pd.read_csv(tmp_path / program.SECONDS, index_col=["suite", "method"])
    table = program.method_table(program.replace(found, seconds=again))
    assert table.loc["mgda", ["gain, validation", "in equal seconds, validation"]].tolist() == [20.0, 8.0]
    assert table.loc["mgda", "step ×"] == pytest.approx(2.2) and table.loc["stl", "step ×"] == pytest.approx(0.5)
    assert "in equal seconds" not in program.tables(found)
    assert program.equal_seconds(found, records, Home(tmp_path / "none"), costs).empty


@pytest.mark.parametrize("method", ["stl", "mgda"])
def test_the_epoch_chosen_among_all_is_the_one_that_the_run_has_chosen(
    method: str,
    small: Callable[..., Experiment],
    uneven: Callable[[], PreparedData],
    run_of: Callable[[Experiment, PreparedData], Run],
) -> None:
    data = uneven()
    training = "{epochs: 8, batch_size: 16, lr: 0.05, evaluate_every: 2}"
    run = train(run_of(small(methods=f"[{method}]", training=training), data), data)
    chosen = program._on_validation(run, run.epochs, 8).metrics["test"]
    assert {task: chosen[task][metric] for task, metric in run.main_metrics.items()} == {
        task: run.metrics["val"][task][metric] for task, metric in run.main_metrics.items()
    }
    first = program._on_validation(run, run.epochs, 1).metrics["test"]
    assert first == {task: run.epochs[1].val[task] for task in run.main_metrics} != chosen


def test_steps_are_timed_alone_and_suites_without_data_are_left_out_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MTLSCALE_DATA", str(tmp_path / "nothing"))
    file = tmp_path / "mine.yaml"
    file.write_text(
        "datasets: [{name: multilabel, label: emotions, options: {set: emotions}}, {name: digits, train: 0.1}]\n"
        "methods: [stl, equal, mgda]\ntraining: {steps_per_epoch: 1, seeds_together: true}\n"
    )
    experiment, home = load_experiment(file), tmp_path / "home"
    options = Namespace(home=home, dataset=None, only=["equal", "mgda"])
    for expected in ("digits 10 %: 2 rows", ""):
        assert program.cost(experiment, options) == 0
        gone, *done = capsys.readouterr().out.splitlines()
        assert gone.startswith("emotions is left out: ") and done == [expected][: bool(expected)]
    assert program.cost(experiment, Namespace(home=home, dataset=["digits 10 %"], only=None)) == 0
    assert capsys.readouterr().out == "digits 10 %: 1 rows\n"
    costs = pd.read_csv(Home(home).experiment("mine") / program.COSTS)
    assert costs["method"].tolist() == ["equal", "mgda", "stl"] and (costs["milliseconds"] > 0).all()

    assert program.run(experiment, Namespace(home=home, dataset=["emotions"], only=None)) == 0
    (gone,) = capsys.readouterr().out.splitlines()
    assert gone.startswith("emotions is left out: ") and "needs its files" in gone


def test_the_errors_of_a_table_are_near_one_where_the_mean_is_predicted() -> None:
    """They are in deviations of the targets, once."""
    frame = pd.read_csv(Path(__file__).parents[2] / "results" / "2026-11-27" / "bencheval.csv")
    constant = frame[(frame["method"] == "constant") & (frame["metric"] == "rmse")]
    tables = constant[~constant["task"].isin(["scpf"])]  # whose test targets vary more than those of training
    assert len(tables) > 50 and tables["metric_error"].between(0.85, 1.35).all()


def test_results_as_bencheval_reads_them(record: Record) -> None:
    """Every run of the first edition is there, and every task has every method and seed."""
    records = program.records_of_results(Path(__file__).parents[2] / "results" / "2026-11-24")
    frame = pd.DataFrame(program.bencheval(records))
    assert list(frame) == ["method", "task", "seed", "metric_error", "time_train_s", "metric"]
    assert len(frame) == len(records) == 59 * 14 * 10 and not frame.isna().any(axis=None)
    counts = frame.groupby(["task", "seed"])["method"].nunique()
    assert len(counts) == 140 and set(counts) == {59} and (frame["metric_error"] >= 0).all()
    errors = frame.groupby(["task", "method"])["metric_error"].mean()
    assert errors["emotions", "mmoe"] == pytest.approx(1 - 0.8380, abs=5e-5)
    lost = record("mgda", 0, {"a": {"accuracy": 80.0}, "b": {"accuracy": 90.0}})
    assert program.bencheval([lost])[0]["metric_error"] == pytest.approx(0.15)
    assert program.bencheval([lost.model_copy(update={"status": "diverged", "metrics": {}})]) == []
    scaled = record("mgda", 0, {"a": {"error": 6.0}}, deviations={"a": 4.0})
    assert program.bencheval([scaled])[0]["metric_error"] == 6.0, "of targets that were divided already"


def test_a_suite_with_a_missing_run_is_left_out_by_name(record: Record) -> None:
    found = program.study_of(runs(record)[:-1], ANALYSIS, rows())
    assert found.suites == ["one", "two"] and found.missing == {"three": "1 of 60 runs are not done"}
    assert "Left out: three (1 of 60 runs are not done)." in program.tables(found)
    with pytest.raises(UserError, match="no suite is complete"):
        program.study_of([], ANALYSIS, rows())


def test_a_method_that_diverges_everywhere_is_told_and_claims_nothing(record: Record) -> None:
    nothing = {"status": "diverged", "error": "NaN", "metrics": {}, "last": {}}
    lost = [one.model_copy(update=nothing if one.method == "mmoe" else {}) for one in runs(record)]
    found = program.study_of(lost, ANALYSIS, rows())
    table = program.method_table(found)
    assert np.isnan(table.loc["mmoe", "gain"]) and table.loc["mmoe", "win"] == ""
    assert table.loc["mmoe", ["better", "worse"]].tolist() == [0, 0]
    assert table.loc["mgda", "win"] == "yes"
    assert program.suite_table(found)["failed runs"].tolist() == [10, 10, 10]


def test_power_is_that_of_a_simulation() -> None:
    analysis = {**ANALYSIS, "difference": 1.0, "power": 0.8, "level_suites": 0.05}
    seeds = program.seeds_for(1.5, analysis, tests=10)
    rng = np.random.default_rng(0)
    for count, enough in ((seeds, True), (seeds - 2, False)):
        p = program.t_test(1.0 + 1.5 * rng.normal(size=(count, 20_000)))
        assert ((p < 0.005).mean() >= 0.795) == enough
    assert program.detectable(1.5, analysis, 10, seeds) == pytest.approx(1.0, abs=0.05)


def test_null_boards_hold_the_level_and_lose_it_without_correction(
    study: program.Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    suites, overall, either = program.null_errors(study, 400)
    assert max(suites, overall) <= either <= 0.07
    monkeypatch.setattr(program, "holm", lambda p: p)
    assert program.null_errors(study, 400)[2] > 0.15


def test_a_changed_suite_is_refused(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "results" / "digits_few_labels"
    before, after = (Path(shutil.copytree(example, tmp_path / name)) for name in ("before", "after"))
    program._check_data(before, after)
    results = (after / "results.json").read_text(encoding="utf-8")
    fingerprint = yaml.safe_load(results)["data"]["digits"]
    (after / "results.json").write_text(results.replace(fingerprint, "0" * len(fingerprint)), encoding="utf-8")
    with pytest.raises(UserError, match=r"has changed since .* another suite"):
        program._check_data(before, after)


def test_the_shipped_file_has_every_balancer_and_the_budget_is_one() -> None:
    experiment = load_experiment(ANALYSIS["experiment"])
    balancers = {method.balancer.name for method in experiment.methods}
    without = {"static", "noise_oracle"}  # equal where nobody sets weights; of known noise
    shipped = {name: program.component("balancers", name) for name in program.names("balancers")}
    asked = {name for name, cls in shipped.items() if not source_hash(cls) and not issubclass(cls, PreferenceBalancer)}
    assert asked - without <= balancers
    assert experiment.search is not None and len(experiment.seeds) == 10
    assert experiment.search.seed not in experiment.seeds
