"""`studies/theory.py`: what the small studies measure, by properties that hold of any draw."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import result_tables
import theory


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_relatedness_is_that_of_the_densities() -> None:
    values = theory.relatedness(0)
    for distance in (0, 1, 2, 4):
        row = f"R of the first two{{}}, distance {distance}"
        assert values[row.format("")] == pytest.approx(values[row.format(" by the true densities")], abs=0.05)
    assert values["smallest fall of R from one distance to the next"] > 0.1


def test_one_direction_for_two_tasks_is_the_least_of_any_start() -> None:
    rng = np.random.default_rng(0)
    tasks = [theory._linear(rng.normal(size=6), 20, rng) for _ in range(2)]
    found = theory._errors(tasks, theory._one_direction(tasks))
    others = [theory._errors(tasks, theory._shared(tasks, 1, np.random.default_rng(start))) for start in range(5)]
    assert found == pytest.approx(min(others), rel=1e-4)


def test_a_source_gains_by_its_data_and_not_by_its_model_alone() -> None:
    values = theory.transfer(0)
    same, disjoint = (values[theory._GAIN.format(c, 1000, 0.96)] for c in ("same", "disjoint"))
    assert values[theory.CASES["transfer"].decides] == same - disjoint > 5.0


def test_a_source_of_the_same_weights_gains_more_than_one_of_others() -> None:
    values = theory.likeness(0, steps=200)
    gains = [values[f"gain, a = {a}, %"] for a in ("0", "1")]
    assert values["gain at a = 1 − at a = 0"] == gains[1] - gains[0] > 20.0


def test_a_layer_as_wide_as_there_are_tasks_transfers_nothing() -> None:
    values = theory.capacity(0)
    for width, nothing in ((1, False), (2, False), (3, True), (4, True)):
        rows = [values[name] for name in values if f"r = {width}, cosine 0.95, %" in name]
        assert len(rows) == 2 and all((abs(value) < 1e-4) is nothing for value in rows)


def test_the_best_shared_directions_are_those_of_the_projected_labels() -> None:
    values = theory.subspace(0)
    above = {name: value for name, value in values.items() if name.startswith("error above")}
    assert len(above) == 9
    assert all(abs(value) < 1e-4 for name, value in above.items() if "Uᵀy" in name)
    assert all(value > 0.1 for name, value in above.items() if "Xᵀy" in name)


def test_weights_find_the_noisy_task_and_equal_weights_gain_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert theory.reweighting(0)["weight of the noisy task over the clean one's, cosine 0.96"] < 1.0
    monkeypatch.setattr(theory, "svd_task_weights", lambda inputs, labels, rank: torch.full((2,), 3.0))
    assert all(value == 0 for name, value in theory.reweighting(0).items() if name.startswith("svd −"))


def test_the_mean_loss_falls_and_not_every_loss_does() -> None:
    values = theory.descent(0)
    assert values["steps in which the mean loss falls, %"] == 100.0
    assert values["steps with ⟨g_i, d⟩ ≥ ⟨g₀, d⟩ for all i, %"] == 0.0
    assert 0.0 < values["steps in which every loss falls, %"] < 100.0
    assert values["powers of ten by which the min-norm gradient falls"] > 1.0


def test_a_page_has_a_verdict_and_a_table_by_seed(tmp_path: Path) -> None:
    case = theory.Case("Does it?", lambda seed: {"a − b": 2.0 + seed, "c": -0.001}, "a − b")
    rows = case.rows(range(3))
    text = theory.page(case, rows)
    assert text.startswith("**shown**: a − b: +3.00 (+0.52, +5.48).")
    [table] = result_tables.cut(f"## theory_x\n\n{text}")
    assert table.rows[1:] == (("a − b", "3.00 ± 2.48", "2.00", "3.00", "4.00"), ("c", "0.00 ± 0.00", *["0.00"] * 3))
    assert theory.picture("x", rows, tmp_path / "x.svg").read_text(encoding="utf-8").startswith("<svg")
