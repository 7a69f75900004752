"""Curves over a number in which methods differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from mtlscale.records import RunRecord
from mtlscale.report import Leaderboard, write_report
from mtlscale.report.sections.method_settings import settings

Make = Callable[..., RunRecord]
WithoutEpochs = Callable[[Iterable[RunRecord]], list[RunRecord]]


@pytest.fixture
def runs(record: Make) -> list[RunRecord]:
    """Two objectives with three strengths, one of them with three batch sizes, on two data sets with three seeds."""
    methods = {"none": (None, 128, 80.0)}
    for strength, gain in ((0.1, 3.0), (1.0, 9.0), (10.0, 6.0)):
        methods[f"PC λ={strength:g}"] = ({"name": "pc", "strength": strength}, 128, 80.0 + gain)
        methods[f"MMD λ={strength:g}"] = ({"name": "mmd", "strength": strength}, 128, 80.0 - gain)
    for batch in (32, 64):
        methods[f"PC batch {batch}"] = ({"name": "pc", "strength": 1.0}, batch, 80.0 + batch / 16)
    found = []
    for dataset, shift in (("A-W", 0.0), ("D-C", 4.0)):
        for label, (objective, batch, score) in methods.items():
            spec = {
                "architecture": {"name": "hps"},
                "objective": objective,
                "training": {"batch_size": batch, "lr": 0.1},
            }
            for seed in range(3):
                test = {"class": {"accuracy": score + shift + seed}}
                val = {"class": {"accuracy": 95.0 - batch / 128 - (objective or {}).get("strength", 0.0)}}
                found.append(record(label, seed, test, dataset=dataset, spec=spec, metrics={"test": test, "val": val}))
    return found


def test_each_number_that_alone_differs_has_its_curve(runs: list[RunRecord]) -> None:
    strength, batch = settings(runs, "none")
    assert (strength.file, batch.file) == ("by_setting_objective.strength", "by_setting_training.batch_size")
    assert list(strength.panels[""]) == ["PC", "MMD"] and len(batch.panels[""]) == 1
    pc = strength.panels[""]["PC"]
    assert list(pc["x"]) == [0.1, 1.0, 10.0]
    assert list(pc["value"]) == pytest.approx([83 + 3, 89 + 3, 86 + 3])  # over both sets and seeds
    assert list(pc["ci"]) == pytest.approx([4.3026527 / 3**0.5] * 3)  # seeds differ by one
    (line,) = batch.panels[""].values()
    assert list(line["x"]) == [32.0, 64.0, 128.0] and line["value"].iloc[2] == pytest.approx(92.0)
    assert strength.levels[""] == (pytest.approx(83.0), "none") and strength.log and not batch.log


def test_a_seed_that_is_not_over_on_all_sets_is_left_out(runs: list[RunRecord]) -> None:
    left = [run for run in runs if not (run.method == "PC λ=1" and run.dataset == "D-C" and run.seed == 2)]
    strength = next(settings(left, "none"))
    assert strength.panels[""]["PC"]["value"].iloc[1] == pytest.approx(89 + 2.5)


def test_the_sentence_sets_what_validation_chooses_beside_the_best_on_test(runs: list[RunRecord]) -> None:
    said = next(settings(runs, "none")).sentences
    assert said[0] == "PC: best on test at 1 (92.00); validation chooses 0.1 (86.00 on test)."


def test_methods_that_differ_in_more_than_a_number_make_no_curve(runs: list[RunRecord]) -> None:
    some = [run for run in runs if run.method in ("none", "PC λ=1", "MMD λ=0.1", "PC batch 32")]
    assert list(settings(some, "none")) == []


def test_pictures_and_the_report(runs: list[RunRecord], without_epochs: WithoutEpochs, tmp_path: Path) -> None:
    runs = without_epochs(runs)
    strength, _ = settings(runs, "none")
    assert strength.chart({}).legend_names == ["PC", "MMD", "none"]
    files = write_report(runs, tmp_path, "x", board=Leaderboard.from_records(runs, reference="none"))
    assert files["by_setting_objective.strength"].exists()
    assert "accuracy by strength, mean over 2 data sets" in files["html"].read_text()
