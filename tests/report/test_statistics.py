import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mtlscale.report.stats.statistics import (
    BETTER,
    OPEN,
    SAME,
    WORSE,
    half_width,
    holm,
    judged,
    mean_ranks,
    paired_tests,
    smallest_difference,
    t_test,
)


def test_interval_against_scipy():
    values = np.array([91.2, 90.4, 92.8, 91.9])
    low, high = stats.t.interval(0.95, 3, loc=values.mean(), scale=stats.sem(values))
    assert values.mean() - half_width(values.std(ddof=1), 4) == pytest.approx(low)
    assert values.mean() + half_width(values.std(ddof=1), 4) == pytest.approx(high)


def test_one_seed_has_no_interval():
    assert np.isnan(half_width(np.nan, 1)) and np.isnan(half_width([0.0, 1.0], [0, 1])).all()


def test_holm_worked_by_hand():
    # sorted: .005 × 4, .01 × 3, .03 × 2, .04 × 1 = .02, .03, .06, .04; the last may not be smaller than the third.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, np.nan, 0.9]) == pytest.approx([1.0, np.nan, 1.0], nan_ok=True)
    assert holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_corrects_upwards_and_keeps_the_order(p_values):
    adjusted = holm(p_values)
    assert (adjusted >= np.array(p_values)).all() and (adjusted <= 1).all()
    assert adjusted.min() == min(1, min(p_values) * len(p_values))
    assert (np.diff(adjusted[np.argsort(p_values, kind="stable")]) >= 0).all()


def scores(seeds=6):
    generator = np.random.default_rng(0)
    equal = generator.normal(90, 1, seeds)
    noise = generator.normal(0, 0.2, (3, seeds))
    return pd.DataFrame(
        {"equal": equal, "up": equal + 2 + noise[0], "down": equal - 2 + noise[1], "like": equal + noise[2]}
    )


def test_paired_tests_against_scipy():
    frame = scores()
    table = paired_tests(frame, "equal")
    for method in ("up", "down", "like"):
        assert table["p_t"][method] == pytest.approx(stats.ttest_rel(frame[method], frame["equal"]).pvalue)
        expected = stats.wilcoxon(frame[method], frame["equal"]).pvalue
        assert table["p_wilcoxon"][method] == pytest.approx(expected)
    assert table["p_holm"].drop("equal").tolist() == pytest.approx(holm(table["p_t"].drop("equal")).tolist())
    assert table["verdict"].to_dict() == {"equal": "", "up": BETTER, "down": WORSE, "like": SAME}
    assert table["difference"]["up"] == pytest.approx((frame["up"] - frame["equal"]).mean())


def test_verdicts_turn_around_where_lower_is_better():
    assert paired_tests(scores(), "equal", higher_is_better=False)["verdict"]["up"] == WORSE


def test_only_shared_seeds_are_compared():
    frame = scores()
    frame.loc[[0, 1], "up"] = np.nan
    table = paired_tests(frame, "equal")
    assert table["pairs"]["up"] == 4
    assert table["p_t"]["up"] == pytest.approx(stats.ttest_rel(frame["up"][2:], frame["equal"][2:]).pvalue)
    frame.loc[[2, 3], "up"] = np.nan
    table = paired_tests(frame, "equal")
    assert table["verdict"]["up"] == OPEN and np.isnan(table["p_t"]["up"])
    # A method that is not tested does not make the others' correction harder.
    assert table["p_holm"]["down"] == pytest.approx(2 * table["p_t"]["down"])


@pytest.mark.parametrize(("seeds", "verdict"), [(3, SAME), (10, BETTER)])
def test_differences_without_spread(seeds: int, verdict: str):
    """Three times the same test item is no proof; ten times the same sign is."""
    equal = 90.0 + np.arange(seeds)
    frame = pd.DataFrame({"equal": equal, "same": equal, "shifted": equal + 1})
    table = paired_tests(frame, "equal")
    assert table["p_t"].drop("equal").tolist() == [1.0, 2.0 ** (1 - seeds)]
    assert table["p_wilcoxon"]["same"] == 1.0
    assert table["verdict"].tolist() == ["", SAME, verdict]


def test_mean_ranks_by_hand():
    values = pd.DataFrame({"a": [90.0, 91.0, 91.0], "b": [0.3, 0.2, 0.1]}, index=["x", "y", "z"])
    # a, higher is better: 3, 1.5, 1.5; b, lower is better: 3, 2, 1
    assert mean_ranks(values, [True, False]).to_dict() == {"x": 3.0, "y": 1.75, "z": 1.25}
    values.loc["y", "a"] = np.nan
    ranks = mean_ranks(values, [True, False])
    assert np.isnan(ranks["y"]) and ranks["x"] == 2.0 and ranks["z"] == 1.0


def test_many_tables_at_once_are_judged_as_one_by_one():
    """What a study of boards without differences counts are the verdicts of a leaderboard."""
    generator = np.random.default_rng(1)
    boards = generator.normal(0.8, 0.02, (4, 30, 5)).round(2)  # [seeds, leaderboards, methods], with ties
    boards[..., 2] += 0.1
    differences = boards[..., 1:] - boards[..., :1]
    verdicts = judged(differences.mean(axis=0), holm(t_test(differences)))
    names = list("abcde")
    for board, found in zip(boards.swapaxes(0, 1), verdicts, strict=True):
        assert paired_tests(pd.DataFrame(board, columns=names), "a")["verdict"].tolist() == ["", *found]
    assert {SAME, BETTER} <= set(verdicts.flat)


def test_smallest_difference_is_the_threshold_of_the_verdict():
    noise = np.array([-1.0, 0.0, 1.0, 0.5, -0.5])
    least = smallest_difference(noise.std(ddof=1), 5, 3)
    for factor, verdict in ((0.99, SAME), (1.01, BETTER)):
        frame = pd.DataFrame({"a": 0 * noise, "b": noise + factor * least, "c": noise, "d": -noise})
        assert paired_tests(frame, "a")["verdict"]["b"] == verdict
    assert np.isnan(smallest_difference(1.0, 2, 1)) and np.isnan(smallest_difference(np.nan, 5, 1))
    assert smallest_difference(0.0, 3, 1) == np.inf and smallest_difference(0.0, 6, 1) == 0


def test_a_verdict_needs_seeds_and_test_items():
    """Rows: p below and above the level, and no test; columns: items not recorded, and 0, better and worse by them."""
    items = np.array([np.nan, 0.0, 1.0, -1.0])
    found = [judged(2.0, p, items).tolist() for p in (0.01, 0.2, np.nan)]
    assert found == [[BETTER, SAME, BETTER, OPEN], [SAME, SAME, OPEN, OPEN], [OPEN] * 4]
    assert judged(-2.0, 0.01, items).tolist() == [WORSE, SAME, OPEN, WORSE] and judged(0.0, 0.01) == SAME


def test_logarithms_are_tested_in_place_of_what_is_shown():
    errors = pd.DataFrame({"equal": [1.0, 1.0, 1.0, 1.0], "five times": [5.0, 6.0, 4.5, 20.0]})
    table = paired_tests(errors, "equal", False, tested=-np.log(errors))
    assert paired_tests(errors, "equal", False)["verdict"]["five times"] == SAME
    assert table["verdict"]["five times"] == WORSE and table["difference"]["five times"] == pytest.approx(7.875)
    # The mean of these errors lies above the reference's, that of their logarithms far below: neither is said.
    few = pd.DataFrame({"equal": np.ones(9), "odd": [9.0, *[1e-3] * 8]})
    told = paired_tests(few, "equal", False, tested=-np.log(few))
    assert told["p_holm"]["odd"] < 0.045 and told["difference"]["odd"] > 0 and told["verdict"]["odd"] == SAME
