import math

import numpy as np
import pandas as pd
import pytest
import scikit_posthocs
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from mtlscale.report.stats.ranking import FEWEST_DATASETS, cliques, critical_difference, friedman, win_shares

# Demšar (2006), table 6: AUC of four learners on 14 data sets. Of voting, C4.5+cf and C4.5+m+cf have ranks 2 and 3
# there, so that their AUCs, alike in three digits, were not.
LEARNERS = ["C4.5", "C4.5+m", "C4.5+cf", "C4.5+m+cf"]
AUC = {
    "adult": (0.763, 0.768, 0.771, 0.798),
    "breast cancer": (0.599, 0.591, 0.590, 0.569),
    "breast cancer wisconsin": (0.954, 0.971, 0.968, 0.967),
    "cmc": (0.628, 0.661, 0.654, 0.657),
    "ionosphere": (0.882, 0.888, 0.886, 0.898),
    "iris": (0.936, 0.931, 0.916, 0.931),
    "liver disorders": (0.661, 0.668, 0.609, 0.685),
    "lung cancer": (0.583, 0.583, 0.563, 0.625),
    "lymphography": (0.775, 0.838, 0.866, 0.875),
    "mushroom": (1.000, 1.000, 1.000, 1.000),
    "primary tumor": (0.940, 0.962, 0.965, 0.962),
    "rheum": (0.619, 0.666, 0.614, 0.669),
    "voting": (0.972, 0.981, 0.9752, 0.9748),
    "wine": (0.957, 0.978, 0.946, 0.970),
}
SCORES = pd.DataFrame(AUC, index=LEARNERS).T


def ranks_of(scores):
    return scores.rank(axis=1, ascending=False)


def test_the_worked_example_of_demsar():
    ranks = ranks_of(SCORES)
    assert ranks.mean().tolist() == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert critical_difference(4, 14) == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 14)), abs=1e-3)
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=5e-3)
    assert critical_difference(4, 14, level=0.10) == pytest.approx(1.12, abs=5e-3)
    # The article does not correct for ties: with that undone, its χ² and F.
    found, spread = friedman(ranks), ((ranks - 2.5) ** 2).to_numpy().sum()
    chi2 = found.chi2 * spread / (14 * 4 * 15 / 12)
    assert chi2 == pytest.approx(9.28, abs=5e-3)
    assert 13 * chi2 / (14 * 3 - chi2) == pytest.approx(3.69, abs=5e-3)
    assert found.rejects and (found.datasets, found.methods) == (14, 4)


def test_friedman_against_scipy():
    found = friedman(ranks_of(SCORES))
    expected = stats.friedmanchisquare(*SCORES.to_numpy().T)
    assert (found.chi2, found.p_chi2) == pytest.approx((expected.statistic, expected.pvalue))
    f = 13 * found.chi2 / (14 * 3 - found.chi2)
    assert (found.f, found.p) == pytest.approx((f, stats.f.sf(f, 3, 39)))


def test_nemenyi_against_scikit_posthocs():
    scores = SCORES + np.array([0.0, 0.0, 0.1, 0.1])
    means, p_values = ranks_of(scores).mean(), scikit_posthocs.posthoc_nemenyi_friedman(scores.to_numpy())
    apart = np.abs(means.to_numpy()[:, None] - means.to_numpy()) >= critical_difference(4, 14)
    assert (apart == (p_values.to_numpy() < 0.05)).all() and apart.any() and not apart.all()


tables = arrays(float, st.tuples(st.integers(5, 9), st.integers(3, 6)), elements=st.integers(0, 9).map(float))


@settings(max_examples=25)
@given(tables, st.integers(0, 2**32 - 1))
def test_order_of_methods_and_data_sets_and_a_constant_change_nothing(values, seed):
    generator = np.random.default_rng(seed)
    scores = pd.DataFrame(values).add_prefix("m")
    moved = scores.sample(frac=1, random_state=seed).sample(frac=1, axis=1, random_state=seed)
    moved = moved.add(pd.Series(generator.integers(-50, 50, len(moved)), index=moved.index), axis=0)
    one, other = friedman(ranks_of(scores)), friedman(ranks_of(moved))
    assert (one.chi2, one.p_chi2, one.p) == pytest.approx((other.chi2, other.p_chi2, other.p))
    assert 0 <= one.p <= 1 and 0 <= one.p_chi2 <= 1
    wins = [win_shares({str(k): row for k, row in of.iterrows()}, scores.columns) for of in (scores, moved)]
    assert wins[0].tolist() == pytest.approx(wins[1].tolist()) and wins[0].mean() == pytest.approx(0.5)


@pytest.mark.parametrize(("datasets", "methods"), [(FEWEST_DATASETS - 1, 4), (9, 2), (0, 0)])
def test_too_little_is_no_test(datasets, methods):
    found = friedman(ranks_of(pd.DataFrame(np.arange(datasets * methods, dtype=float).reshape(datasets, methods))))
    assert np.isnan([found.chi2, found.f, found.p]).all() and not found.rejects
    assert np.isnan(critical_difference(methods, datasets))


def test_all_alike_and_all_different():
    alike = friedman(ranks_of(pd.DataFrame(np.ones((6, 3)))))
    assert (alike.chi2, alike.p) == (0.0, 1.0)
    ordered = friedman(ranks_of(pd.DataFrame(np.tile([3.0, 2.0, 1.0], (6, 1)))))
    assert ordered.chi2 == pytest.approx(12.0) and ordered.f == math.inf
    assert ordered.p == ordered.p_chi2 == pytest.approx(stats.chi2.sf(12.0, 2))


def test_cliques_are_the_largest_groups_within_the_difference():
    means = pd.Series({"d": 3.9, "a": 1.0, "c": 2.1, "b": 1.5, "e": 6.0})
    assert cliques(means, 1.2) == [("a", "b", "c")]
    assert cliques(means, 2.0) == [("a", "b", "c"), ("c", "d")]
    assert cliques(means, 10.0) == [("a", "b", "c", "d", "e")]
    assert cliques(means, 0.5) == []  # a difference as large as the critical one is told
    assert cliques(pd.Series({"a": 1.5, "b": 1.5, "c": 3.0}), 1.0) == [("a", "b")]


def test_wins_by_hand():
    scores = {
        "one": pd.Series({"a": 3.0, "b": 2.0, "c": 2.0}),  # a beats two; b and c a half each
        "two": pd.Series({"a": 1.0, "b": 5.0}),
        "three": pd.Series({"d": 1.0}),  # nobody to beat
    }
    shares = win_shares(scores, pd.Index(["a", "b", "c", "d"]))
    assert shares[["a", "b", "c"]].tolist() == pytest.approx([2 / 3, 1.5 / 3, 0.5 / 2]) and np.isnan(shares["d"])


@pytest.mark.parametrize("methods", [3, 6])
def test_methods_that_are_all_alike_are_rarely_told_apart(methods):
    generator = np.random.default_rng(0)
    tables = generator.normal(size=(800, FEWEST_DATASETS, methods)).argsort().argsort() + 1.0
    found = [friedman(pd.DataFrame(ranks)).rejects for ranks in tables]
    means = tables.mean(axis=1)
    apart = np.ptp(means, axis=1) >= critical_difference(methods, FEWEST_DATASETS)
    assert 0.02 < np.mean(found) < 0.08 and np.mean(found & apart) < 0.06
