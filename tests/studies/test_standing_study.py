"""`studies/standing_study.py`: gains, wins, power, null boards, suites that are left out or have changed."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.config import UserError, load_experiment
from mtlscale.config.registry.components import source_hash
from mtlscale.records import RunRecord

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
