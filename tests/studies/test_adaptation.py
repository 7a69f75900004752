"""`studies/adaptation.py`: means over transfers, and gains paired by transfer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from scipy import stats

from mtlscale.config import UserError
from mtlscale.records import RunRecord

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import adaptation as program

Record = Callable[..., RunRecord]
GAINS = {"A-W": 9.0, "C-D": 4.0, "D-A": 2.0, "W-C": 6.0}


@pytest.fixture
def runs(record: Record) -> list[RunRecord]:
    found = []
    for place, (transfer, gain) in enumerate(GAINS.items()):
        for seed in range(3):
            base = 80.0 + place + seed
            for method, score in (("none", base), ("pc", base + gain), ("mmd", base + 1)):
                test = {"class": {"accuracy": score}}
                last = {"test": {"class": {"accuracy": score + 0.5 * (method == "pc")}}}
                found.append(record(method, seed, test, dataset=transfer, last=last))
    return found


def test_gains_are_means_over_transfers_with_their_spread_and_a_paired_test(runs: list[RunRecord]) -> None:
    lines = list(program.tables(runs, "none"))
    row = next(line for line in lines if line.startswith("| pc |"))
    gains = list(GAINS.values())
    error = stats.sem(gains) * stats.t.ppf(0.975, len(gains) - 1)
    p = 2 * stats.ttest_1samp(gains, 0.0).pvalue  # the smaller of two
    assert f"| {82.5 + 5.25:.2f} | +5.25 ± {error:.2f} | {p:.2g} |" in row
    assert f"| {82.5 + 5.75:.2f} | +5.75 ±" in row
    assert any(line.startswith("| A-W |") and line.endswith("| 81.0 | 90.5 | 82.0 |") for line in lines)


def test_a_method_that_lacks_a_transfer_is_left_out_and_the_reference_must_not(runs: list[RunRecord]) -> None:
    some = [run for run in runs if (run.method, run.dataset) != ("mmd", "C-D")]
    assert not any(line.startswith("| mmd |") for line in program.tables(some, "none"))
    with pytest.raises(UserError, match="none did not finish on every transfer"):
        list(program.tables([run for run in runs if (run.method, run.dataset) != ("none", "C-D")], "none"))


def test_the_best_strength_of_each_transfer_bounds_a_rival(record: Record) -> None:
    scores = {"none": (80.0, 80.0), "mmd λ=0.1": (81.0, 85.0), "mmd λ=1": (83.0, 84.0), "mmd λ=10": (70.0, 82.0)}
    runs = [
        record(method, 0, {"class": {"accuracy": both[place]}}, dataset=transfer)
        for method, both in scores.items()
        for place, transfer in enumerate(("A-W", "C-D"))
    ]
    lines = list(program.tables(runs, "none"))
    assert "| transfer | none | mmd λ=0.1 | mmd λ=1 | mmd λ=10 | mmd, its best λ |" in lines
    assert (
        "| A-W | 80.0 | 81.0 | 83.0 | 70.0 | 83.0 |" in lines and "| C-D | 80.0 | 85.0 | 84.0 | 82.0 | 85.0 |" in lines
    )
