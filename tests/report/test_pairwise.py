import numpy as np
import pytest
from scipy import stats

from mtlscale.report.leaderboard import Leaderboard
from mtlscale.report.sections.pairs import of_pairs, pairwise
from mtlscale.report.stats.statistics import BETTER, SAME, WORSE, holm

SEEDS = 8


@pytest.fixture
def table(record):
    generator = np.random.default_rng(1)
    means = {"stl": 80.0, "equal": 84.0, "near": 84.0, "worst": 70.0}
    runs = {method: mean + generator.normal(0, 0.5, SEEDS) for method, mean in means.items()}
    records = [record(m, seed, {"a": {"accuracy": v}}) for m, of in runs.items() for seed, v in enumerate(of)]
    return next(iter(Leaderboard.from_records(records).tables.values()))


def test_every_pair_against_scipy_corrected_over_all(table):
    found = pairwise(table)
    scores = table.runs.pivot(index="seed", columns="method", values="delta_i")
    once = [(a, b) for i, a in enumerate(found.methods) for b in found.methods[i + 1 :]]
    p_values = [stats.ttest_rel(scores[a], scores[b]).pvalue for a, b in once]
    p, p_holm, difference = (found.matrix(name) for name in ("p", "p_holm", "difference"))
    for (a, b), raw, corrected in zip(once, p_values, holm(p_values), strict=True):
        assert p.loc[a, b] == p.loc[b, a] == pytest.approx(raw)
        assert p_holm.loc[a, b] == p_holm.loc[b, a] == pytest.approx(corrected)
        assert difference.loc[a, b] == -difference.loc[b, a] == pytest.approx((scores[a] - scores[b]).mean())
    verdicts = found.matrix("verdict")
    assert verdicts.loc["equal", "stl"] == BETTER and verdicts.loc["stl", "equal"] == WORSE
    assert verdicts.loc["near", "equal"] == SAME


def test_columns_are_one_per_method_in_the_order_of_the_table(table):
    found = pairwise(table)
    assert list(found.methods) == list(table.rows.index)
    sheet = of_pairs(found)
    assert list(sheet.header) == ["method", *(f"− {method}" for method in found.methods)]
    columns = dict(zip(sheet.header, sheet.columns, strict=True))
    place = found.methods.index("worst")
    against = columns["− worst"]
    assert against.texts[place] == "–" and against.marked("gain") == frozenset(range(len(found.methods))) - {place}
    assert all(text.endswith("▲") for row, text in enumerate(against.texts) if row != place)
    assert columns["− equal"].texts[place].startswith("−") and columns["− equal"].marked("loss") >= {place}
    assert "over 6 pairs" in sheet.notes[0]


def test_smaller_is_better_where_it_is(record):
    runs = {"good": [1.0, 1.1, 0.9, 1.0, 1.05], "bad": [9.0, 9.2, 8.9, 9.1, 9.0]}
    records = [record(m, s, {"a": {"abs_err": v}}) for m, of in runs.items() for s, v in enumerate(of)]
    found = pairwise(next(iter(Leaderboard.from_records(records).tables.values())))
    assert found.matrix("verdict").loc["good", "bad"] == BETTER and found.matrix("difference").loc["good", "bad"] < 0


def test_few_seeds_and_mean_ranks_are_not_tested(record):
    records = [record(m, s, {"a": {"accuracy": 80.0 + s}}) for m in ("stl", "equal") for s in range(2)]
    found = pairwise(next(iter(Leaderboard.from_records(records).tables.values())))
    assert (
        found.pairs["p_holm"].isna().all()
        and "1 pair not tested: fewer than 3 seeds in common" in of_pairs(found).notes
    )
    test = {"seg": {"mIoU": 50.0}, "depth": {"abs_err": 1.0}}
    records = [record(m, s, test) for m in ("one", "two") for s in range(4)]
    found = pairwise(next(iter(Leaderboard.from_records(records).tables.values())))
    assert found.order == "mean_rank" and set(found.pairs["verdict"]) == {""}
    assert of_pairs(found).notes == ["no tests: a mean rank is no number of one seed"]
    alone = pairwise(next(iter(Leaderboard.from_records([record("one", 0, test)]).tables.values())))
    assert alone.pairs.empty and of_pairs(alone).texts == (("one", "–"),)
