"""The claims' page: its differences are those of the tables, its states follow from them, its comparisons have rows."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
import claims
from claims import Comparison, Difference, difference, independent, paired


def test_the_page_is_what_the_tables_say() -> None:
    page = claims.PAGE.read_text(encoding="utf-8")
    assert claims.written(page, claims.planned()) == page, "run `python studies/claims.py`"
    assert "no claim noted" not in page.lower()


@pytest.mark.parametrize(
    ("mean", "half", "printed", "state"),
    [
        (2.0, 1.0, 2.5, "shown"),
        (2.0, 1.0, None, "shown"),
        (2.0, 1.0, 3.5, "smaller than printed"),
        (0.5, 1.0, 2.0, "excluded"),
        (-2.0, 1.0, 2.0, "excluded"),
        (-2.0, 1.0, None, "excluded"),
        (0.5, 1.0, 1.2, "open"),
        (0.5, 1.0, None, "open"),
    ],
)
def test_states(mean: float, half: float, printed: float | None, state: str) -> None:
    assert Difference(mean, half, 1.0, 4).state(printed) == state


def test_independent_means_by_hand() -> None:
    """20 Newsgroups: 89.28 ± 1.47 and 89.67 ± 0.98 over three seeds."""
    found = independent((89.28, 1.47), (89.67, 0.98), 3)
    assert (round(found.mean, 2), round(found.half, 2)) == (-0.39, 1.14)


def test_seeds_that_are_needed_grow_with_the_square_of_the_spread() -> None:
    few, many = (Difference(0.0, 1.0, spread, 100).needed(1.0) for spread in (3.0, 6.0))
    assert 70 < few < 90 and few * 3.8 < many < few * 4.2


def test_seeds_are_paired_where_the_table_has_them(tmp_path: Path) -> None:
    rows = {"a_leaderboard.csv": [["method", "average"], ["x ≈", "2.00 ± 1.00"], ["y", "1.00 ± 1.00"]]}
    of_seeds = [["method by seed", "0", "1", "2"], ["x", "1.0", "2.0", "3.1"], ["y", "0.0", "1.0", "2.0"]]
    for name, table in rows.items():
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(table)
    comparison = Comparison(section="", source="", table="a_leaderboard.csv", method="x", other="y")
    apart = difference(comparison, tmp_path)
    with (tmp_path / "a_by_seed_seeds.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(of_seeds)
    together = difference(comparison, tmp_path)
    assert apart.mean == 1.0 and together.mean == pytest.approx(31 / 30)
    assert together.half == pytest.approx(paired([1.0, 1.0, 1.1]).half) and together.half < apart.half / 5


def test_a_table_by_seed_is_paired(tmp_path: Path) -> None:
    rows = [["method by seed", "0", "1", "2"], ["x", "1.0", "2.0", "3.1"], ["y", "0.0", "1.0", "2.0"]]
    with (tmp_path / "moved.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows)
    comparison = Comparison(section="", source="", table="moved.csv", method="y", other="x", lower=True)
    assert difference(comparison, tmp_path).mean == pytest.approx(31 / 30)


def test_a_method_beside_the_mean_of_several_others(tmp_path: Path) -> None:
    rows = {
        "a_leaderboard.csv": [["method", "average"], ["x", "2.00"], ["y", "1.00"], ["z", "3.00"]],
        "a_by_seed_seeds.csv": [
            ["method by seed", "0", "1"],
            ["x", "2.0", "5.0"],
            ["y", "1.0", "2.0"],
            ["z", "2.0", "4.0"],
        ],
    }
    for name, table in rows.items():
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows(table)
    comparison = Comparison(
        section="", source="", table="a_leaderboard.csv", method="x", other="mean of the others", others=["y", "z"]
    )
    assert difference(comparison, tmp_path).mean == pytest.approx((0.5 + 2.0) / 2)


def test_a_comparison_without_a_row_is_refused() -> None:
    comparison = Comparison(section="AAMTRL", source="figure 99", table="", method="a", other="b")
    with pytest.raises(ValueError, match="comparisons without exactly one row: figure 99"):
        claims.written(claims.PAGE.read_text(encoding="utf-8"), [comparison])
