"""Methods compared over data sets: ranks, wins, gains and costs from the tables of a leaderboard.

Definitions: docs/methods.md#across-data-sets.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mtlscale.report import bayes, ranking
from mtlscale.report.gains import task_deltas
from mtlscale.report.notes import in_percent
from mtlscale.report.pareto import FLOOR, pareto
from mtlscale.report.statistics import half_width
from mtlscale.report.table import Table
from mtlscale.report.texts import counted, names, number_word
from mtlscale.spec import UserError

ROPE = 1.0  # points of Δ, or of a metric in percent, that make no difference in practice
SURE = 0.95  # posterior probability of a verdict
BETTER, SAME, WORSE, OPEN = "better", "equivalent", "worse", "undecided"
FEWEST_FOR_INTERVAL = 3  # data sets: two make an interval of 12.7 standard errors
# Column of ours -> column of a table, and that of the reference's row which it is a ratio to.
COSTS = {
    "parameters": ("parameters", "parameters"),
    "memory": ("peak_memory_mb", "peak_memory_mb"),
    "seconds": ("seconds", "seconds"),
    "search": ("phase_seconds", "seconds"),
    "total": ("total_seconds", "total_seconds"),
}
_MOST_SETS = 2000  # of methods, tried as those to compare


@dataclass(frozen=True, kw_only=True)
class Across:
    """What the tables of several data sets say together.

    `rows` has one row per method, best mean rank first. `mean_rank`: over the compared data sets. Over all that the
    method finished on (`datasets`): `wins` (percent of comparisons with another method), `gain` (mean of `quality` over
    `gain_datasets`), `gain_ci` (half its 95 % interval over them) and `worst` (the worst Δ of a task, percent; where:
    `worst_dataset`, `worst_task`). Against the reference: `better`, `same` and `worse` (posterior probabilities),
    `verdict`, and geometric means of cost ratios `parameters`, `memory`, `seconds`, `search`, `total`. `finished` of
    `runs`. `front_total`, `front_parameters`: no compared method has a higher gain at as low a cost.
    """

    datasets: tuple[str, ...]
    baseline: str | None
    reference: str | None
    quality: str  # what gains are of: Δ (delta_i), points over the reference (average), or "": nothing comparable
    rows: pd.DataFrame
    ranks: pd.DataFrame  # [data sets, methods] of those that are compared, best first; 1 is best
    trade: pd.DataFrame  # compared methods: `gain`, and the costs `total` and `parameters` as ratios to the reference
    friedman: ranking.Friedman
    critical_difference: float
    cliques: tuple[tuple[str, ...], ...]  # methods that the ranks do not tell apart
    rope: float
    notes: tuple[str, ...]


def across(tables: Mapping[str, Table], rope: float = ROPE) -> Across | None:
    """None below two data sets. `rope`: half the region of practical equivalence, in points."""
    if len(tables) < 2:
        return None
    if not rope > 0:
        raise UserError(f"a difference of {rope:g} points cannot be the largest that makes none; give one above 0")
    reference, baseline = (_common(getattr(of, what) for of in tables.values()) for what in ("reference", "baseline"))
    methods = pd.Index(list(dict.fromkeys(m for of in tables.values() for m in of.rows.index)), name="method")
    scores = {name: _scores(table) for name, table in tables.items()}
    datasets, compared = comparable({name: frozenset(of.index) for name, of in scores.items()}, reference)
    ranks = pd.DataFrame(
        [scores[name][compared].rank(ascending=False) for name in datasets], index=datasets, columns=compared
    )
    means = ranks.mean().sort_values(kind="stable")
    ranks = ranks[means.index]
    friedman = ranking.friedman(ranks)
    difference = ranking.critical_difference(friedman.methods, friedman.datasets)
    quality = _quality(tables)
    gains = pd.DataFrame({name: _gains(table, quality) for name, table in tables.items()}).reindex(methods)

    rows = pd.DataFrame({"mean_rank": means.reindex(methods)})
    rows["wins"] = 100.0 * ranking.win_shares(scores, methods)
    rows["datasets"] = [sum(method in of.index for of in scores.values()) for method in methods]
    rows["gain"], rows["gain_ci"], rows["gain_datasets"] = gains.mean(axis=1), _interval(gains), gains.count(axis=1)
    rows.loc[rows.index == (baseline if quality == "delta_i" else reference), "gain_ci"] = np.nan  # 0 by definition
    rows = rows.join([_worst(tables, methods), _probabilities(gains, reference, rope), _costs(tables, methods)])
    counts = pd.concat([of.rows[["finished", "planned"]] for of in tables.values()]).groupby(level=0).sum()
    rows["finished"], rows["runs"] = counts["finished"], counts["planned"]
    trade = _trade({name: tables[name] for name in datasets}, means, gains, reference)
    for cost in ("total", "parameters"):
        front = pd.Series(pareto(trade[cost].to_numpy(float), trade["gain"].to_numpy(float)), index=trade.index)
        trade[f"front_{cost}"] = front
        rows[f"front_{cost}"] = front.reindex(methods, fill_value=False)
    rows = rows.sort_values(["mean_rank", "wins"], ascending=[True, False], na_position="last", kind="stable")
    return Across(
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
        notes=tuple(_notes(tables, rows, ranks, gains, reference)),
    )


def comparable(finished: Mapping[str, frozenset[str]], reference: str | None) -> tuple[list[str], list[str]]:
    """The data sets and the methods that are ranked: every one of these methods finished on every one of these data
    sets, and of all such choices this has the most (data sets − 1) · (methods − 1), the degrees of freedom; at a tie
    with the reference, then with more data sets. Empty where two data sets have no two methods in common."""
    closed: dict[frozenset[str], None] = {}
    for methods in dict.fromkeys(finished.values()):
        for known in [*closed, methods]:
            if len(closed) < _MOST_SETS and len(known & methods) > 1:
                closed[known & methods] = None
    chosen: frozenset[str] = frozenset()
    most = (0, False, 0)
    for methods in closed:
        count = sum(methods <= of for of in finished.values())
        key = ((count - 1) * (len(methods) - 1), reference in methods, count)
        if key[0] > 0 and key > most:
            chosen, most = methods, key
    datasets = [name for name, of in finished.items() if chosen and chosen <= of]
    order = dict.fromkeys(method for name in datasets for method in sorted(finished[name]))
    return datasets, [method for method in order if method in chosen]


def _common(labels: Iterable[str | None]) -> str | None:
    """The label that most tables have."""
    counts = Counter(label for label in labels if label is not None)
    return counts.most_common(1)[0][0] if counts else None


def _scores(table: Table) -> pd.Series[float]:
    """What methods are ranked by, higher is better, of those that have it."""
    values = table.rows[table.order].astype(float)
    return (-values if table.ascending else values).dropna()


def _quality(tables: Mapping[str, Table]) -> str:
    """The gain that most data sets have, Δ before points over the reference."""
    found = {name: sum(_gains(of, name).notna().sum() > 1 for of in tables.values()) for name in ("delta_i", "average")}
    best = max(found, key=lambda name: found[name])
    return best if found[best] else ""


def _gains(table: Table, quality: str) -> pd.Series[float]:
    """By method, in points, positive is better: Δ, or the average less the reference's where it is in percent."""
    rows = table.rows
    gains: pd.Series[float] = pd.Series(np.nan, index=rows.index)
    if quality == "delta_i":
        if not table.near_zero:
            gains = rows["delta_i"]
        elif table.order == "delta_main":  # a Δ that rests on a value near 0 would be all that the mean says
            gains = rows["delta_main"]
    if quality == "average" and table.reference is not None and in_percent(table):
        gains = (rows["average"] - rows["average"][table.reference]) * (1.0 if table.higher("average") else -1.0)
    return gains


def _interval(gains: pd.DataFrame) -> pd.Series[float]:
    counts = gains.notna().sum(axis=1)
    return pd.Series(half_width(gains.std(axis=1), counts), index=gains.index).where(counts >= FEWEST_FOR_INTERVAL)


def _worst(tables: Mapping[str, Table], methods: pd.Index) -> pd.DataFrame:
    """The worst Δ of a task on any data set, and where that is; nothing of baselines, whose Δ is 0."""
    found = pd.DataFrame({"worst": np.nan, "worst_dataset": "", "worst_task": ""}, index=methods)
    for name, table in tables.items():
        deltas = task_deltas(table).drop(index=table.baseline or [], errors="ignore").dropna(how="all")
        for label, least in deltas.min(axis=1).items():
            method = str(label)
            if not least >= found.at[method, "worst"]:
                found.loc[method] = [least, name, str(deltas.loc[method].idxmin())]
    return found


def _probabilities(gains: pd.DataFrame, reference: str | None, rope: float) -> pd.DataFrame:
    found = pd.DataFrame(np.nan, index=gains.index, columns=["better", "same", "worse"])
    verdicts = pd.Series("", index=gains.index, name="verdict")
    if reference is not None and reference in gains.index:
        for method in gains.index.drop(reference):
            chances = bayes.signed_rank(gains.loc[method] - gains.loc[reference], rope)
            found.loc[method] = chances
            if not np.isnan(chances.same):
                sure = [name for name, p in zip((BETTER, SAME, WORSE), chances, strict=True) if p >= SURE]
                verdicts[method] = sure[0] if sure else OPEN
    return found.join(verdicts)


def _costs(tables: Mapping[str, Table], methods: pd.Index) -> pd.DataFrame:
    """Geometric means over data sets of the ratios to the reference's cost."""
    found = {}
    for name, (ours, theirs) in COSTS.items():
        logs = [
            _log(table.rows[ours]) - _log(table.rows[theirs])[table.reference]
            for table in tables.values()
            if table.reference is not None
        ]
        mean = pd.concat(logs, axis=1).mean(axis=1) if logs else pd.Series(dtype=float)
        found[name] = np.exp(mean.reindex(methods))
    return pd.DataFrame(found)


def _trade(
    tables: Mapping[str, Table], means: pd.Series[float], gains: pd.DataFrame, reference: str | None
) -> pd.DataFrame:
    """Gain and costs of the compared methods over the compared data sets; the negative mean rank where there is no
    gain, costs themselves where the reference is not compared. Without the floor, which costs next to nothing."""
    methods = means.index.drop(FLOOR, errors="ignore")
    gain: pd.Series[float] = gains.loc[methods, list(tables)].mean(axis=1, skipna=False)
    trade = pd.DataFrame({"gain": gain if gain.notna().any() else -means[methods]})
    for cost in ("total", "parameters"):
        logs = [_log(table.rows.loc[methods, COSTS[cost][0]]) for table in tables.values()]
        mean: pd.Series[float] = pd.Series(np.nan, index=methods)
        if logs:
            mean = pd.concat(logs, axis=1).mean(axis=1, skipna=False)
        if reference is not None and reference in mean.index:
            mean = mean - float(mean[reference])  # a checker needs minutes for the same as one expression
        trade[cost] = np.exp(mean)
    return trade


def _log(costs: pd.Series[float]) -> pd.Series[float]:
    values = costs.astype(float)
    return values.where(costs > 0).map(math.log, na_action="ignore")


def _cliques(means: pd.Series[float], friedman: ranking.Friedman, difference: float) -> list[tuple[str, ...]]:
    """Nemenyi's test comes after Friedman's: where that finds nothing, nothing is told apart."""
    if np.isnan(friedman.p):
        return []
    return ranking.cliques(means, difference) if friedman.rejects else [tuple(map(str, means.index))]


def _notes(
    tables: Mapping[str, Table], rows: pd.DataFrame, ranks: pd.DataFrame, gains: pd.DataFrame, reference: str | None
) -> list[str]:
    """What is missing, and what would be needed."""
    notes = []
    count, methods = ranks.shape
    if left := [name for name in tables if name not in ranks.index]:
        over = f"over the {counted(count, 'data set')} that all {methods} compared methods finished on"
        notes.append(f"ranks, groups and fronts are {over}, without {names(left)}")
    if unranked := list(rows.index[rows["mean_rank"].isna()]):
        notes.append(f"no rank, not finished on all of these: {names(unranked)}")
    if count < ranking.FEWEST_DATASETS or methods < ranking.FEWEST_METHODS:
        few = [
            f"{number_word(have)} {noun}{'s are' if have > 1 else ' is'} too few to rank methods ({least} needed)"
            for have, noun, least in (
                (count, "data set", ranking.FEWEST_DATASETS),
                (methods, "method", ranking.FEWEST_METHODS),
            )
            if have < least
        ]
        notes.append("; ".join(few))
    if reference is None:
        notes.append("no reference: no probabilities and no cost ratios")
    else:
        shared = gains.sub(gains.loc[reference]).drop(index=reference).notna().sum(axis=1)
        if few := list(shared.index[shared < ranking.FEWEST_DATASETS]):
            least = ranking.FEWEST_DATASETS
            if len(tables) < least:
                sets = f"{number_word(len(tables))} data sets are too few"
                notes.append(f"{sets} to say how probably a method is better than {reference} ({least} needed)")
            else:
                of = f"how probably {names(few)} {'is' if len(few) == 1 else 'are'} better than {reference}"
                notes.append(f"too few data sets with both to say {of} ({least} needed)")
    near = [name for name, table in tables.items() if table.near_zero and gains[name].isna().all()]
    if near:
        notes.append(f"no gains on {names(near)}: {'its' if len(near) == 1 else 'their'} Δ rests on metrics near 0")
    if missing := [name for name in tables if name not in near and gains[name].isna().all()]:
        notes.append(f"nothing that gains could be compared by on {names(missing)}")
    if single := [name for name, of in tables.items() if of.rows["finished"].max() == 1]:
        notes.append(f"one seed on {names(single)}: what another would give there is not known")
    return notes
