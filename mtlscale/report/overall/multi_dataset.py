"""The comparison of methods over data sets: ranks, wins, gains and costs from the tables of a leaderboard.

Definitions: docs/methods.md#across-data-sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.config import UserError
from mtlscale.report.cells.number_format import counted, names, number_word
from mtlscale.report.columns.deltas import task_deltas
from mtlscale.report.stats import bayes, ranking
from mtlscale.report.stats.pareto import FLOOR, pareto
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.stats.ties import tied
from mtlscale.report.tables.caveats import in_percent
from mtlscale.report.tables.table import Table

ROPE = 1.0  # largest difference without practical meaning, in points of Δ or of a metric in percent
SURE = 0.95  # posterior probability of a verdict
BETTER, SAME, WORSE, OPEN = "better", "equivalent", "worse", "undecided"
# Cost of `Overall.rows` -> the table's column, and the column of the reference's row that divides it.
COSTS = {
    "parameters": ("parameters", "parameters"),
    "memory": ("peak_memory_mb", "peak_memory_mb"),
    "seconds": ("seconds", "seconds"),
    "search": ("phase_seconds", "seconds"),
    "total": ("total_seconds", "total_seconds"),
}
_MOST_SETS = 2000  # sets of methods that are tried, at most, in choosing the ones to compare


@dataclass(frozen=True, kw_only=True)
class Overall:
    """The joint result of the tables of several data sets.

    `rows` has one row per method, best mean rank first, with these columns:

    - `mean_rank`: over the compared data sets.
    - `datasets`: how many the method finished on; `wins`, `gain` and `worst` are over all of them.
    - `wins`: percent of comparisons with another method.
    - `gain`, `gain_ci`: mean of `quality` over `gain_datasets` data sets, and half its 95 % interval over them.
    - `worst`, `worst_dataset`, `worst_task`: the worst Δ of a task, in percent, and its data set and task.
    - `better`, `same`, `worse`, `verdict`: posterior probabilities against the reference, and the conclusion.
    - `parameters`, `memory`, `seconds`, `search`, `total`: geometric means of cost ratios to the reference.
    - `finished`, `runs`: how many runs finished, of how many.
    - `front_total`, `front_parameters`: whether no compared method has a higher gain at as low a cost.
    """

    datasets: tuple[str, ...]
    baseline: str | None
    reference: str | None
    quality: str  # what gains measure: "delta_i" (Δ), "average" (points over the reference), "" (nothing comparable)
    rows: pd.DataFrame
    ranks: pd.DataFrame  # [compared data sets, compared methods], best method first; 1 is best
    trade: pd.DataFrame  # compared methods: `gain`, and the costs `total` and `parameters` as ratios to the reference
    friedman: ranking.Friedman
    critical_difference: float
    cliques: tuple[tuple[str, ...], ...]  # groups of methods that the ranks do not tell apart
    rope: float
    notes: tuple[str, ...]
    floors: tuple[str, ...] = ()  # methods that train no network


def overall(tables: Mapping[str, Table], rope: float = ROPE) -> Overall | None:
    """Return the joint result of several data sets; None for fewer than two.

    Raises `UserError` if `rope`, half the width of the region of practical equivalence in points, is not above 0.
    """
    if len(tables) < 2:
        return None
    if not rope > 0:
        raise UserError(f"a difference of {rope:g} points cannot be the largest that makes none; give one above 0")

    reference, baseline = (
        _common(getattr(table, role) for table in tables.values()) for role in ("reference", "baseline")
    )
    methods = pd.Index(list(dict.fromkeys(m for table in tables.values() for m in table.rows.index)), name="method")

    scores = {name: _scores(table) for name, table in tables.items()}
    datasets, compared = comparable({name: frozenset(score.index) for name, score in scores.items()}, reference)

    ranks = pd.DataFrame(
        [tied(scores[name][compared]).rank(ascending=False) for name in datasets], index=datasets, columns=compared
    )
    means = tied(ranks.mean()).sort_values(kind="stable")
    ranks = ranks[means.index]
    friedman = ranking.friedman(ranks)
    difference = ranking.critical_difference(friedman.methods, friedman.datasets)

    quality = _quality(tables)
    gains = pd.DataFrame({name: _gains(table, quality) for name, table in tables.items()}).reindex(methods)

    rows = pd.DataFrame({"mean_rank": means.reindex(methods)})
    rows["wins"] = 100.0 * ranking.win_shares(scores, methods)
    rows["datasets"] = [sum(method in score.index for score in scores.values()) for method in methods]
    rows["gain"], rows["gain_ci"], rows["gain_datasets"] = gains.mean(axis=1), _interval(gains), gains.count(axis=1)
    rows.loc[rows.index == (baseline if quality == "delta_i" else reference), "gain_ci"] = np.nan  # 0 by definition
    rows = rows.join([_worst(tables, methods), _probabilities(gains, reference, rope), _costs(tables, methods)])

    counts = pd.concat([table.rows[["finished", "planned"]] for table in tables.values()]).groupby(level=0).sum()
    rows["finished"], rows["runs"] = counts["finished"], counts["planned"]

    trade = _trade({name: tables[name] for name in datasets}, means, gains, reference)
    for cost in ("total", "parameters"):
        front = pd.Series(pareto(trade[cost].to_numpy(float), trade["gain"].to_numpy(float)), index=trade.index)
        trade[f"front_{cost}"] = front
        rows[f"front_{cost}"] = front.reindex(methods, fill_value=False)

    rows = rows.sort_values(["mean_rank", "wins"], ascending=[True, False], na_position="last", kind="stable", key=tied)
    return Overall(
        datasets=tuple(tables),
        baseline=baseline,
        reference=reference,
        quality=quality,
        rows=rows,
        ranks=ranks,
        trade=trade,
        friedman=friedman,
        critical_difference=difference,
        cliques=tuple(_cliques(means, friedman, difference)),
        rope=rope,
        notes=tuple(_missing_notes(tables, rows, ranks, gains, reference)),
        floors=tuple(dict.fromkeys(floor for table in tables.values() for floor in table.floors)),
    )


def comparable(finished: Mapping[str, frozenset[str]], reference: str | None) -> tuple[list[str], list[str]]:
    """Choose the data sets and the methods that are ranked: each of these methods finished on each of these data sets.

    Of all such choices this has the most (data sets − 1) · (methods − 1), the degrees of freedom; at a tie the one with
    the reference, then the one with more data sets. Both lists are empty where no two data sets have two methods in
    common.
    """
    intersections: dict[frozenset[str], None] = {}
    for methods in dict.fromkeys(finished.values()):
        for intersection in [*intersections, methods]:
            if len(intersections) < _MOST_SETS and len(intersection & methods) > 1:
                intersections[intersection & methods] = None

    compared: frozenset[str] = frozenset()
    best_key = (0, False, 0)
    for methods in intersections:
        count = sum(methods <= finishers for finishers in finished.values())
        key = ((count - 1) * (len(methods) - 1), reference in methods, count)
        if key[0] > 0 and key > best_key:
            compared, best_key = methods, key

    datasets = [name for name, finishers in finished.items() if compared and compared <= finishers]
    order = dict.fromkeys(method for name in datasets for method in sorted(finished[name]))
    return datasets, [method for method in order if method in compared]


def _common(labels: Iterable[str | None]) -> str | None:
    """Return the label that most tables have."""
    counts = Counter(label for label in labels if label is not None)
    return counts.most_common(1)[0][0] if counts else None


def _scores(table: Table) -> pd.Series[float]:
    """Return the score that methods are ranked by, higher is better, without methods that have none."""
    values = table.rows[table.order].astype(float)
    return (-values if table.ascending else values).dropna()


def _quality(tables: Mapping[str, Table]) -> str:
    """Return the gain that most data sets have, Δ before points over the reference."""
    counts = {
        name: sum(_gains(table, name).notna().sum() > 1 for table in tables.values()) for name in ("delta_i", "average")
    }

    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else ""


def _gains(table: Table, quality: str) -> pd.Series[float]:
    """Return each method's gain in points: Δ, or the average less the reference's where that is in percent."""
    rows = table.rows
    gains: pd.Series[float] = pd.Series(np.nan, index=rows.index)
    if quality == "delta_i":
        if not table.near_zero:
            gains = rows["delta_i"]
        elif table.order == "delta_main":  # a Δ that rests on a value near 0 would dominate the mean
            gains = rows["delta_main"]
    if quality == "average" and table.reference is not None and in_percent(table):
        gains = (rows["average"] - rows["average"][table.reference]) * (1.0 if table.higher("average") else -1.0)
    return gains


def _interval(gains: pd.DataFrame) -> pd.Series[float]:
    counts = gains.notna().sum(axis=1)
    return pd.Series(half_width(gains.std(axis=1), counts), index=gains.index)


def _worst(tables: Mapping[str, Table], methods: pd.Index) -> pd.DataFrame:
    """Find each method's worst Δ of a task on any data set; baselines, whose Δ is 0, get none."""
    worst: dict[str, tuple[float, str, str]] = {}
    for name, table in tables.items():
        deltas = task_deltas(table).drop(index=table.baseline or [], errors="ignore").dropna(how="all")
        for method, least, task in zip(deltas.index, deltas.min(axis=1), deltas.idxmin(axis=1), strict=True):
            if method not in worst or least < worst[method][0]:
                worst[method] = (least, name, str(task))

    rows = [worst.get(method, (math.nan, "", "")) for method in methods]
    return pd.DataFrame(rows, index=methods, columns=["worst", "worst_dataset", "worst_task"])


def _probabilities(gains: pd.DataFrame, reference: str | None, rope: float) -> pd.DataFrame:
    probabilities = pd.DataFrame(np.nan, index=gains.index, columns=["better", "same", "worse"])
    verdicts = pd.Series("", index=gains.index, name="verdict")

    if reference is not None and reference in gains.index:
        for method in gains.index.drop(reference):
            chances = bayes.signed_rank(gains.loc[method] - gains.loc[reference], rope)
            probabilities.loc[method] = chances
            if not np.isnan(chances.same):
                sure = [name for name, p in zip((BETTER, SAME, WORSE), chances, strict=True) if p >= SURE]
                verdicts[method] = sure[0] if sure else OPEN

    return probabilities.join(verdicts)


def _costs(tables: Mapping[str, Table], methods: pd.Index) -> pd.DataFrame:
    """Return the geometric means over data sets of the cost ratios to the reference."""
    ratios = {}
    for name, (column, reference_column) in COSTS.items():
        logs = [
            _log(table.rows[column]) - _log(table.rows[reference_column])[table.reference]
            for table in tables.values()
            if table.reference is not None
        ]
        mean = pd.concat(logs, axis=1).mean(axis=1) if logs else pd.Series(dtype=float)
        ratios[name] = np.exp(mean.reindex(methods))
    return pd.DataFrame(ratios)


def _trade(
    tables: Mapping[str, Table], means: pd.Series[float], gains: pd.DataFrame, reference: str | None
) -> pd.DataFrame:
    """Return gain and costs of the compared methods over the compared data sets, without floors."""
    # Without any gain the negative mean rank stands for it; costs are absolute where the reference is not compared.
    methods = means.index.drop(FLOOR, errors="ignore")
    gain: pd.Series[float] = gains.loc[methods, list(tables)].mean(axis=1, skipna=False)

    trade = pd.DataFrame({"gain": gain if gain.notna().any() else -means[methods]})
    for cost in ("total", "parameters"):
        logs = [_log(table.rows.loc[methods, COSTS[cost][0]]) for table in tables.values()]
        mean: pd.Series[float] = pd.Series(np.nan, index=methods)
        if logs:
            mean = pd.concat(logs, axis=1).mean(axis=1, skipna=False)
        if reference is not None and reference in mean.index:
            mean = mean - float(mean[reference])  # as one expression this takes a type checker minutes
        trade[cost] = np.exp(mean)

    return trade


def _log(costs: pd.Series[float]) -> pd.Series[float]:
    values = costs.astype(float)
    return values.where(costs > 0).map(math.log, na_action="ignore")


def _cliques(means: pd.Series[float], friedman: ranking.Friedman, difference: float) -> list[tuple[str, ...]]:
    """Group the methods that Nemenyi's test does not tell apart; all, where Friedman's finds no difference."""
    if np.isnan(friedman.p):
        return []
    return ranking.cliques(means, difference) if friedman.rejects else [tuple(map(str, means.index))]


def _missing_notes(
    tables: Mapping[str, Table], rows: pd.DataFrame, ranks: pd.DataFrame, gains: pd.DataFrame, reference: str | None
) -> list[str]:
    """Say what is missing, and what would be needed."""
    notes = []

    count, methods = ranks.shape

    if unranked_datasets := [name for name in tables if name not in ranks.index]:
        scope = f"over the {counted(count, 'data set')} that all {methods} compared methods finished on"
        notes.append(f"ranks, groups and fronts are {scope}, without {names(unranked_datasets)}")
    if unranked_methods := list(rows.index[rows["mean_rank"].isna()]):
        notes.append(f"no rank, not finished on all of these: {names(unranked_methods)}")

    if count < ranking.FEWEST_DATASETS or methods < ranking.FEWEST_METHODS:
        too_few = [
            f"{number_word(have)} {noun}{'s are' if have > 1 else ' is'} too few to rank methods ({least} needed)"
            for have, noun, least in (
                (count, "data set", ranking.FEWEST_DATASETS),
                (methods, "method", ranking.FEWEST_METHODS),
            )
            if have < least
        ]
        notes.append("; ".join(too_few))

    if reference is None:
        notes.append("no reference: no probabilities and no cost ratios")
    else:
        shared_counts = gains.sub(gains.loc[reference]).drop(index=reference).notna().sum(axis=1)
        if too_few := list(shared_counts.index[shared_counts < ranking.FEWEST_DATASETS]):
            least = ranking.FEWEST_DATASETS
            if len(tables) < least:
                sets = f"{number_word(len(tables))} data sets are too few"
                notes.append(f"{sets} to say how probably a method is better than {reference} ({least} needed)")
            else:
                claim = f"how probably {names(too_few)} {'is' if len(too_few) == 1 else 'are'} better than {reference}"
                notes.append(f"too few data sets with both to say {claim} ({least} needed)")

    near_zero = [name for name, table in tables.items() if table.near_zero and gains[name].isna().all()]
    if near_zero:
        notes.append(
            f"no gains on {names(near_zero)}: {'its' if len(near_zero) == 1 else 'their'} Δ rests on metrics near 0"
        )
    if datasets_without_gains := [name for name in tables if name not in near_zero and gains[name].isna().all()]:
        notes.append(f"nothing that gains could be compared by on {names(datasets_without_gains)}")

    if single_seed_datasets := [name for name, table in tables.items() if table.rows["finished"].max() == 1]:
        notes.append(f"one seed on {names(single_seed_datasets)}: what another would give there is not known")

    return notes
