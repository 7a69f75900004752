"""The one sentence to take away from a data set's table."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mtlscale.report.notes import smallest, unit
from mtlscale.report.statistics import BETTER, FEWEST_SEEDS, LEVEL, SAME, WORSE, half_width
from mtlscale.report.table import Table
from mtlscale.report.texts import SCORE_NAMES, about, counted, names, number_word, signed

_ALMOST = 0.1  # a p-value below it is compared with 0.05 by who reads it


def takeaway(table: Table) -> str:
    """Which method is best and whether that is real, which others are better or worse than the reference, how many
    cannot be told from it, and what did not finish. Plain text: names are as the user gave them."""
    rows = table.rows
    parts = [*_compared(table)] if rows[table.order].notna().any() else ["no run has reported a metric"]
    if unfinished := len(table.failures):
        total = int(rows["planned"].sum())
        some = names(list(table.failures["method"].unique()))
        parts.append(f"{unfinished} of {total} runs did not finish ({some})")
    return f"{f'On {table.dataset}, ' if table.dataset else ''}{'; '.join(parts)}."


def _compared(table: Table) -> Iterator[str]:
    """What is said of the best method, then of the others in the order of the table."""
    verdicts, reference, best = table.rows["verdict"], table.reference, str(table.rows.index[0])
    yield _best(table, best, verdicts.iloc[0])
    if reference is None:
        return
    others = verdicts.drop(index=list({best, reference}), errors="ignore")  # the reference need not be shown
    for verdict in (BETTER, WORSE):
        if named := list(others.index[others == verdict]):
            yield f"{'also ' if verdict == verdicts.iloc[0] else ''}{verdict} than {reference}: {names(named)}"
    if same := int((others == SAME).sum()):
        rest = f"the other {number_word(same)}" if same > 1 else others.index[others == SAME][0]
        yield f"{rest} cannot be told from {reference}"


def _best(table: Table, best: str, verdict: str) -> str:
    rows, reference = table.rows, table.reference
    value = rows[table.order].iloc[0]
    size = f"{signed(value, '+.2f')} %" if table.relative else f"{value:.4g}"
    if table.relative and best == table.baseline and len(rows) > 1:
        size = f"no method beats {'single-task learning' if best == 'stl' else 'it'}"  # 0 % by definition
    score = SCORE_NAMES[table.order].removeprefix("the ")
    by = f"is best by {score} ({size})"
    if reference is None:
        return f"{best} {by}; there is no row to test it against"
    if table.order == "mean_rank" or len(rows) == 1:
        return f"{best} {by}"
    most, least = smallest(table)
    if verdict not in (BETTER, WORSE, SAME) and (best != reference or most < FEWEST_SEEDS):
        seeds = most if best == reference else int(rows["pairs"].iloc[0])
        against = "nothing is tested against it" if best == reference else f"not tested against {reference}"
        return f"{best} {by}, {against}: {counted(seeds, 'seed')} in common, {FEWEST_SEEDS} are needed"
    p_value = rows["p_holm"].iloc[0]
    above = f", above the threshold of {LEVEL}" if LEVEL <= p_value < _ALMOST else ""
    tested = f"{counted(int(rows['pairs'].iloc[0]), 'seed')}, Holm p = {p_value:.2g}{above}"
    if verdict in (BETTER, WORSE):
        return f"{best} {by}, {verdict} than {reference} by {_difference(table, best)} ({tested})"
    if (rows["verdict"] == BETTER).any():
        return f"{best} {by}, but cannot be told from {reference} ({tested})"
    blind = ""
    if 0 < least < math.inf:
        blind = f"{counted(most, 'seed')} cannot show differences below about {about(least, unit(table))}"
    none = f"no method is shown to be better than {reference}"
    if best == reference:
        return f"{none}, which {by}{blind and f'; {blind}'}"
    return f"{none}: {best} {by}, but this can be chance ({tested}){blind and f', and {blind}'}"


def _difference(table: Table, method: str) -> str:
    """The size of the mean difference to the reference with half its 95 % interval, over the seeds they share."""
    scores = table.runs.pivot(index="seed", columns="method", values=table.order)
    difference = (scores[method] - scores[table.reference]).dropna()
    mean, width = abs(difference.mean()), float(half_width(difference.std(), len(difference)))
    digits = 2 if unit(table) else max(2, 2 - math.floor(math.log10(mean)))
    return f"{mean:.{digits}f} ± {width:.{digits}f}{' points' if unit(table) else ''}"
