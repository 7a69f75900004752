"""Columns of texts of the overall leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import numpy as np
import pandas as pd

from mtlscale.report.formats.layout import Block, LeaderboardColumn
from mtlscale.report.formats.number_format import EMPTY, counted, points, signed
from mtlscale.report.overall.multi_dataset import BETTER, OPEN, SAME, SURE, WORSE, MultiDatasetResult

_ORDER = {BETTER: 3.0, SAME: 2.0, OPEN: 1.0, WORSE: 0.0}


def columns(result: MultiDatasetResult) -> list[LeaderboardColumn]:
    """Return every column that has values, in order: quality, cost."""
    rows, base, ref, within = result.rows, result.baseline, result.reference, points(result.rope)
    rank_help = f"mean rank over {counted(len(result.ranks), 'data set')}, 1 is best"
    candidates = [
        _number(rows["mean_rank"], "rank", rank_help, ".2f", higher=False),
        _groups(result),
        _number(rows["wins"], "wins %", "comparisons with another method on a data set; ties half", ".0f", True),
        _gain(result),
        _number(rows["worst"], "worst Δ %", f"the lowest Δ over {base} of any task", "+.2f", True),
        _worst_task(rows),
        _verdicts(result),
        _number(rows["better"], "P better", f"probability of more than {within} over {ref}", ".2f", True, marked=False),
        _number(rows["same"], "P same", f"probability of at most {within} from {ref}", ".2f", True, marked=False),
        _number(rows["worse"], "P worse", f"probability of more than {within} below {ref}", ".2f", False, marked=False),
        _shares(rows["datasets"], [len(result.datasets)] * len(rows), "data sets", "finished on, of all"),
        _shares(rows["finished"], rows["runs"].tolist(), "runs", "finished of planned"),
        _fronts(rows),
    ]

    costs = (
        ("parameters", "params ×", "number of parameters"),
        ("memory", "MB ×", "peak memory"),
        ("seconds", "s/run ×", "seconds of a run's last phase"),
        ("search", "+ search ×", "seconds of the phases before, a search say, where there are any"),
        ("total", "= total ×", "seconds of all phases together"),
    )
    for name, header, quantity in costs:
        if name != "total" or rows["search"].notna().any():
            help = f"{quantity}, as a ratio to {ref}: geometric mean over data sets"
            candidates.append(_number(rows[name], header, help, ".2f", block="cost"))

    return [column for column in candidates if any(text != EMPTY for text in column.texts)]


def letters(cliques: Sequence[Sequence[str]], methods: Sequence[str]) -> dict[str, str]:
    """Return method -> its group letters; methods that share a letter are not told apart.

    Each clique has a letter, and so has each method that is in no clique.
    """
    singles = [(method,) for method in methods if not any(method in clique for clique in cliques)]
    groups = sorted([*cliques, *singles], key=lambda group: [methods.index(method) for method in group])
    marks = [
        ascii_letters[number] if number < len(ascii_letters) else f"({number + 1})" for number in range(len(groups))
    ]

    return {
        method: "".join(mark for mark, group in zip(marks, groups, strict=True) if method in group)
        for method in methods
    }


def _groups(result: MultiDatasetResult) -> LeaderboardColumn:
    methods = [str(method) for method in result.ranks.columns]
    marks = {} if np.isnan(result.friedman.p) else letters(result.cliques, methods)
    texts = [marks.get(str(method), EMPTY) for method in result.rows.index]
    help = f"methods that share a letter are not told apart by ranks (Nemenyi, {result.critical_difference:.3g} apart)"
    return LeaderboardColumn(
        block="quality", header="group", help=help, texts=texts, keys=result.rows["mean_rank"].tolist()
    )


def _gain(result: MultiDatasetResult) -> LeaderboardColumn:
    rows, average = result.rows, result.quality == "average"
    measure = f"points over {result.reference}" if average else f"gain over {result.baseline}"
    help = f"mean over data sets of the {measure}, ± half its 95 % interval over data sets"
    texts = [
        EMPTY if np.isnan(gain) else signed(gain, "+.2f") + ("" if np.isnan(width) else f" ± {width:.2f}")
        for gain, width in zip(rows["gain"], rows["gain_ci"], strict=True)
    ]

    header = f"− {result.reference}" if average else "Δ %"
    best = _best(rows["gain"], higher=True)
    return LeaderboardColumn(
        block="quality", header=header, help=help, texts=texts, keys=rows["gain"].tolist(), best=best
    )


def _worst_task(rows: pd.DataFrame) -> LeaderboardColumn:
    texts = [
        f"{task}, {dataset}" if task else EMPTY
        for task, dataset in zip(rows["worst_task"], rows["worst_dataset"], strict=True)
    ]
    help = "the task with the lowest Δ, and its data set"
    return LeaderboardColumn(block="quality", header="on task", help=help, texts=texts, keys=rows["worst"].tolist())


def _verdicts(result: MultiDatasetResult) -> LeaderboardColumn:
    texts = [text or EMPTY for text in result.rows["verdict"]]
    gains, losses = (frozenset(row for row, text in enumerate(texts) if text == verdict) for verdict in (BETTER, WORSE))
    test_text = f"Bayesian signed-rank test, ±{points(result.rope)} as equivalent"
    help = f"what has a probability of {SURE:g} or more ({test_text})"
    keys = [_ORDER.get(text, np.nan) for text in texts]
    header = f"vs {result.reference}"
    return LeaderboardColumn(
        block="quality", header=header, help=help, texts=texts, keys=keys, gains=gains, losses=losses
    )


def _shares(counts: pd.Series[int], of: Sequence[int], header: str, help: str) -> LeaderboardColumn:
    texts = [f"{count}/{total}" for count, total in zip(counts, of, strict=True)]
    return LeaderboardColumn(
        block="quality", header=header, help=help, texts=texts, keys=counts.astype(float).tolist(), higher=True
    )


def _fronts(rows: pd.DataFrame) -> LeaderboardColumn:
    """Return the column of Pareto fronts among the compared methods, on the compared data sets."""
    texts = [
        ", ".join(name for name, on_front in (("time", time), ("params", size)) if on_front) or EMPTY
        for time, size in zip(rows["front_total"], rows["front_parameters"], strict=True)
    ]
    keys = (rows["front_total"].astype(float) + rows["front_parameters"]).tolist()
    help = "on the Pareto front: no ranked method gains more in as little time, or with as few parameters"
    return LeaderboardColumn(block="cost", header="front", help=help, texts=texts, keys=keys, higher=True)


def _number(
    values: pd.Series[float],
    header: str,
    help: str,
    form: str,
    higher: bool | None = None,
    *,
    marked: bool = True,
    block: Block = "quality",
) -> LeaderboardColumn:
    texts = [EMPTY if np.isnan(value) else signed(value, form) for value in values]
    best, keys = _best(values, higher if marked else None), values.tolist()
    return LeaderboardColumn(block=block, header=header, help=help, texts=texts, keys=keys, higher=higher, best=best)


def _best(values: pd.Series[float], higher: bool | None) -> frozenset[int]:
    if higher is None or values.notna().sum() < 2:
        return frozenset()
    return frozenset(np.flatnonzero(values == (values.max() if higher else values.min())).tolist())
