import baycomp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtlscale.report.stats.bayes import signed_rank
from mtlscale.report.stats.ranking import FEWEST_DATASETS


@pytest.mark.parametrize("shift", [-1.5, 0.0, 0.6, 1.2, 3.0])
def test_against_baycomp(shift):
    differences = np.random.default_rng(3).normal(shift, 1.5, 12)
    # baycomp's left is where the second is worse.
    worse, same, better = baycomp.SignedRankTest.probs(np.zeros(12), differences, rope=1.0, nsamples=20_000)
    assert signed_rank(differences, 1.0) == pytest.approx((better, same, worse), abs=0.02)


def test_what_is_certain():
    assert signed_rank([5.0] * 8, 1.0).better > 0.99
    assert signed_rank([-5.0] * 8, 1.0).worse > 0.99
    assert signed_rank([0.5, -0.5] * 4, 1.0) == (0.0, 1.0, 0.0)


def test_pairs_on_the_edge_of_the_rope_count_half_on_either_side():
    differences = np.array([1.0, 1.0, 1.0, 1.0, 2.0, 0.0, 3.0, -1.0])
    worse, same, better = baycomp.SignedRankTest.probs(np.zeros(8), differences, rope=1.0, nsamples=20_000)
    assert 0.05 < better < 0.95
    assert signed_rank(differences, 1.0) == pytest.approx((better, same, worse), abs=0.02)


def test_too_few_data_sets_are_no_probability():
    enough = [3.0] * FEWEST_DATASETS
    assert not np.isnan(signed_rank(enough, 1.0)).any()
    assert np.isnan(signed_rank(enough[1:], 1.0)).all() and np.isnan(signed_rank([*enough[1:], np.nan], 1.0)).all()


lists = st.lists(st.integers(-4, 4).map(float), min_size=5, max_size=9)


@settings(max_examples=25, deadline=None)
@given(lists, st.randoms())
def test_order_of_data_sets_is_nothing_and_a_gain_never_harms(differences, random):
    one = signed_rank(differences, 1.0, draws=4000)
    assert sum(one) == pytest.approx(1.0)
    assert signed_rank(random.sample(differences, len(differences)), 1.0, draws=4000) == one
    # Where some are the same, a gain may turn them and leave what is worse as the largest of the rest: it is told
    # without a rope, on numbers whose means are never 0.
    plain, more = (signed_rank(np.array(differences) + gain, 0.0, draws=4000) for gain in (0.25, 1.25))
    assert more.worse <= plain.worse and more.better >= plain.better
    turned = signed_rank(-np.array(differences), 1.0, draws=4000)
    assert turned.better == pytest.approx(one.worse, abs=0.06)
