"""Takeaway sentence of a data set's table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd

from mtlscale.report.cells.number_format import SCORE_NAMES, counted, names, number_word, signed
from mtlscale.report.stats.statistics import BETTER, FEWEST_SEEDS, LEVEL, OPEN, SAME, WORSE, half_width
from mtlscale.report.stats.ties import tied
from mtlscale.report.tables.caveats import detectable_text, unit
from mtlscale.report.tables.table import Table

_ALMOST = 0.1  # readers compare a p-value below it with 0.05


def takeaway(table: Table) -> str:
    """Return the sentence to take away from a table, as plain text: names are as the user gave them.

    It says whether networks lie below a floor, which method is best and whether that is real, which others are better
    or worse than the reference, how many cannot be told from it, and which runs did not finish. Where nothing can be
    compared it says that alone.
    """
    parts = ["no run has reported a metric"]
    if table.incomparable:
        parts = [table.incomparable]
    elif table.rows[table.order].notna().any():
        parts = [*_compared(table)]

    if unfinished := len(table.failures):
        total = int(table.rows["planned"].sum())
        method_names = names(list(table.failures["method"].unique()))
        parts.append(f"{unfinished} of {total} runs did not finish ({method_names})")
    return f"{f'On {table.dataset}, ' if table.dataset else ''}{'; '.join(parts)}."


def _compared(table: Table) -> Iterator[str]:
    """Yield the clauses on floors and on the best method, then those on the others in the order of the table."""
    scores = tied(table.rows[table.order].dropna()) * (-1.0 if table.ascending else 1.0)
    floors = scores[scores.index.isin(table.floors)]
    networks = scores.drop(index=floors.index)
    best, subject = _leader(table, networks if len(networks) else scores), ""

    below: list[str] = []
    if len(networks) and len(floors):
        floor, highest = str(floors.index[0]), floors.iloc[0]
        below = list(networks.index[networks < highest])
        if not (networks > highest).any():
            level = names(list(networks.index[networks == highest])) if len(below) < len(networks) else ""
            shown = "network shown" if table.hidden else "network"
            finding = f"every {shown} lies below the {floor} floor"
            if level:
                finding = f"no {shown} lies above the {floor} floor, {level} at its level"
            yield f"{finding}: train longer or tune before comparing"
            subject, below = "of the networks, ", []
    if best in table.repeats:
        yield f"{subject}{best} repeats {table.reference}"
    else:
        yield _best(table, best, f"{subject}{best}")
    if below:
        yield f"below the {floor} floor: {names(below)}"

    verdicts, reference = table.rows["verdict"], table.reference
    if reference is None:
        return
    others = verdicts.drop(index=list({best, reference}), errors="ignore")  # the reference need not be shown
    for verdict in (BETTER, WORSE):
        if methods := list(others.index[others == verdict]):
            yield f"{'also ' if verdict == verdicts[best] else ''}{verdict} than {reference}: {names(methods)}"
    if undecided := list(others.index[(others == OPEN) & table.rows["p_holm"].reindex(others.index).notna()]):
        yield f"{OPEN} against {reference}: {names(undecided)}"
    if same := list(others.index[others == SAME]):
        rest = len(same) + len(undecided) + int(others.isin((BETTER, WORSE)).sum()) == len(others)
        count = f"{'the other ' if rest else ''}{number_word(len(same))}{'' if rest else ' others'}"
        yield f"{count if len(same) > 1 else same[0]} cannot be told from {reference}"


def _leader(table: Table, scores: pd.Series[float]) -> str:
    """Return the best method of these scores; one that repeats the reference, or ties with it, leaves that to it."""
    candidates = scores.drop(index=list(table.repeats), errors="ignore")
    candidates = candidates if len(candidates) else scores
    best, reference = str(candidates.index[0]), str(table.reference)
    return reference if reference in candidates and candidates[reference] == candidates[best] else best


def _best(table: Table, best: str, subject: str) -> str:
    """Return the clause on the best method, which stands for it as the subject of the sentence."""
    rows, reference = table.rows, table.reference
    row = _row(table, best)
    size = f"{signed(row[table.order], '+.2f')} %" if table.relative else f"{row[table.order]:.4g}"
    if table.relative and best == table.baseline and len(rows) > 1:
        kind = "method" if subject == best else "network"
        size = f"no {kind} beats {'single-task learning' if best == 'stl' else 'it'}"  # 0 % by definition

    claim = f"is best by {SCORE_NAMES[table.order].removeprefix('the ')} ({size})"
    if reference is None:
        return f"{subject} {claim}; there is no row to test it against"
    if table.order == "mean_rank" or len(rows) == 1:
        return f"{subject} {claim}"

    if best == reference:
        if table.shared_seeds < FEWEST_SEEDS:
            common = counted(table.shared_seeds, "seed")
            return f"{subject} {claim}, nothing is tested against it: {common} in common, {FEWEST_SEEDS} are needed"
        if (rows["verdict"] == BETTER).any():
            return f"{subject} {claim}"
        note = f"; {text}" if (text := detectable_text(table)) else ""
        which = "which of the networks" if subject != best else "which"
        return f"no method is shown to be better than {reference}, {which} {claim}{note}"

    if math.isnan(row["p_holm"]):
        common = counted(int(row["pairs"]), "seed")
        return f"{subject} {claim}, not tested against {reference}: {common} in common, {FEWEST_SEEDS} are needed"
    if row["verdict"] in (BETTER, WORSE):
        difference, in_logs = _difference(table, best)
        return f"{subject} {claim}, {row['verdict']} than {reference} by {difference} ({in_logs}{_tested(row)})"

    if (rows["verdict"] == BETTER).any():
        return f"{subject} {claim}, but {_doubt(table, best)}"
    note = f"; {text}" if (text := detectable_text(table)) and row["p_holm"] >= LEVEL else ""
    return f"no method is shown to be better than {reference}: {subject} {claim}, but {_doubt(table, best)}{note}"


def _row(table: Table, method: str) -> dict[str, Any]:
    return dict(zip(map(str, table.rows), table.rows.loc[method], strict=True))


def _tested(row: Mapping[str, Any]) -> str:
    p_value = row["p_holm"]
    threshold_note = f", above the threshold of {LEVEL}" if LEVEL <= p_value < _ALMOST else ""
    return f"{counted(int(row['pairs']), 'seed')}, Holm p = {p_value:.2g}{threshold_note}"


def _doubt(table: Table, method: str) -> str:
    """Return why a tested method is neither better nor worse than the reference."""
    row, reference = _row(table, method), table.reference
    basis, width = _tested(row), row["difference_items"]
    if row["verdict"] == SAME and row["p_holm"] >= LEVEL:
        return f"this can be chance ({basis})"

    if not math.isnan(width):
        digits = max(2, 1 - math.floor(math.log10(width))) if width > 0 else 2
        difference = signed(row["difference_average"], f"+.{digits}f")
        basis += f"; average {difference} ± {width:.{digits}f} over test items"
        if row["verdict"] == SAME and abs(row["difference_average"]) <= width:
            return f"other test items could undo it ({basis})"
        if row["p_holm"] >= LEVEL:
            return f"it is {OPEN}: test items tell it from {reference}, seeds do not ({basis})"
    return f"its measures contradict each other ({basis})"


def _difference(table: Table, method: str) -> tuple[str, str]:
    """Return the mean difference to the reference with half its interval, and in log points if those are tested."""

    def mean_and_width(values: pd.Series[float]) -> tuple[float, float]:
        scores = table.by_seed(values)
        differences = (scores[method] - scores[table.reference]).dropna()
        return abs(differences.mean()), float(half_width(differences.std(), len(differences)))

    mean, width = mean_and_width(table.runs[table.order])
    digits = max(2, (1 if unit(table) else 2) - math.floor(math.log10(mean)))
    of_unit = " points" if unit(table) else ""
    if not table.in_logs(table.order):
        return f"{mean:.{digits}f} ± {width:.{digits}f}{of_unit}", ""
    log_mean, log_width = mean_and_width(table.tested(table.order))
    return f"{mean:.{digits}f}{of_unit}", f"{log_mean:.3g} ± {log_width:.2g} log points, "
