"""Takeaway sentence of a data set's table."""

from __future__ import annotations

import math
from collections.abc import Iterator

from mtlscale.report.cells.number_format import SCORE_NAMES, about, counted, names, number_word, signed
from mtlscale.report.stats.statistics import BETTER, FEWEST_SEEDS, LEVEL, SAME, WORSE, half_width
from mtlscale.report.tables.caveats import smallest, unit
from mtlscale.report.tables.table import Table

_ALMOST = 0.1  # readers compare a p-value below it with 0.05


def takeaway(table: Table) -> str:
    """Return the sentence to take away from a table, as plain text: names are as the user gave them.

    It says which method is best and whether that is real, which others are better or worse than the reference, how many
    cannot be told from it, and which runs did not finish.
    """
    rows = table.rows
    parts = [*_compared(table)] if rows[table.order].notna().any() else ["no run has reported a metric"]
    if unfinished := len(table.failures):
        total = int(rows["planned"].sum())
        method_names = names(list(table.failures["method"].unique()))
        parts.append(f"{unfinished} of {total} runs did not finish ({method_names})")
    return f"{f'On {table.dataset}, ' if table.dataset else ''}{'; '.join(parts)}."


def _compared(table: Table) -> Iterator[str]:
    """Yield the clause on the best method, then those on the others in the order of the table."""
    verdicts, reference, best = table.rows["verdict"], table.reference, str(table.rows.index[0])
    yield _best(table, best, verdicts.iloc[0])
    if reference is None:
        return
    other_verdicts = verdicts.drop(index=list({best, reference}), errors="ignore")  # the reference need not be shown
    for verdict in (BETTER, WORSE):
        if methods := list(other_verdicts.index[other_verdicts == verdict]):
            yield f"{'also ' if verdict == verdicts.iloc[0] else ''}{verdict} than {reference}: {names(methods)}"
    if same := int((other_verdicts == SAME).sum()):
        subject = f"the other {number_word(same)}" if same > 1 else other_verdicts.index[other_verdicts == SAME][0]
        yield f"{subject} cannot be told from {reference}"


def _best(table: Table, best: str, verdict: str) -> str:
    rows, reference = table.rows, table.reference
    value = rows[table.order].iloc[0]
    size = f"{signed(value, '+.2f')} %" if table.relative else f"{value:.4g}"
    if table.relative and best == table.baseline and len(rows) > 1:
        size = f"no method beats {'single-task learning' if best == 'stl' else 'it'}"  # 0 % by definition

    score = SCORE_NAMES[table.order].removeprefix("the ")
    claim = f"is best by {score} ({size})"
    if reference is None:
        return f"{best} {claim}; there is no row to test it against"

    if table.order == "mean_rank" or len(rows) == 1:
        return f"{best} {claim}"

    most_seeds, least_difference = smallest(table)
    if verdict not in (BETTER, WORSE, SAME) and (best != reference or most_seeds < FEWEST_SEEDS):
        seeds = most_seeds if best == reference else int(rows["pairs"].iloc[0])
        against = "nothing is tested against it" if best == reference else f"not tested against {reference}"
        return f"{best} {claim}, {against}: {counted(seeds, 'seed')} in common, {FEWEST_SEEDS} are needed"

    p_value = rows["p_holm"].iloc[0]
    threshold_note = f", above the threshold of {LEVEL}" if LEVEL <= p_value < _ALMOST else ""
    tested = f"{counted(int(rows['pairs'].iloc[0]), 'seed')}, Holm p = {p_value:.2g}{threshold_note}"

    if verdict in (BETTER, WORSE):
        return f"{best} {claim}, {verdict} than {reference} by {_difference(table, best)} ({tested})"
    if (rows["verdict"] == BETTER).any():
        return f"{best} {claim}, but cannot be told from {reference} ({tested})"

    note = ""
    if 0 < least_difference < math.inf:
        note = (
            f"{counted(most_seeds, 'seed')} cannot show differences below about {about(least_difference, unit(table))}"
        )

    no_better_method = f"no method is shown to be better than {reference}"
    if best == reference:
        return f"{no_better_method}, which {claim}{note and f'; {note}'}"
    return f"{no_better_method}: {best} {claim}, but this can be chance ({tested}){note and f', and {note}'}"


def _difference(table: Table, method: str) -> str:
    """Return the mean difference to the reference with half its 95 % interval, over the seeds they share."""
    scores = table.runs.pivot(index="seed", columns="method", values=table.order)
    difference = (scores[method] - scores[table.reference]).dropna()
    mean, width = abs(difference.mean()), float(half_width(difference.std(), len(difference)))
    digits = 2 if unit(table) else max(2, 2 - math.floor(math.log10(mean)))
    return f"{mean:.{digits}f} ± {width:.{digits}f}{' points' if unit(table) else ''}"
