"""What a table says in words: its summary, its legend, and what did not finish."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mtlscale.report.columns import signed
from mtlscale.report.statistics import BETTER, FEW, LEVEL, SAME, WORSE

if TYPE_CHECKING:
    from mtlscale.report.table import Table


def summary(table: Table) -> str:
    """What the table says, in one line of plain words."""
    rows = table.rows
    total = int(rows[["finished", "failed", "diverged"]].to_numpy().sum())
    unfinished = len(table.failures)
    parts = []
    if rows[table.order].notna().any():
        parts.append(_best(table))
    others = rows.iloc[1:].drop(index=table.reference or [], errors="ignore")  # of the best it is said already
    also = "also " if rows["verdict"].iloc[0] == BETTER else ""
    for verdict, adverb in ((BETTER, also), (WORSE, "")):
        named = list(others.index[others["verdict"] == verdict])
        if named:
            parts.append(f"{adverb}{verdict} than {table.reference}: {_names(named)}")
    if unfinished:
        parts.append(f"{unfinished} of {total} runs did not finish ({_names(list(table.failures['method'].unique()))})")
    return "; ".join(parts or ["no run has reported a metric"]) + "."


def failures(table: Table) -> list[tuple[str, int, str, str]]:
    """(method, seed, status, cause) of each run that did not finish."""
    rows = table.failures[["method", "seed", "status", "error"]].values.tolist()
    return [(method, seed, status, error or "no cause recorded") for method, seed, status, error in rows]


def legend(table: Table) -> str:
    """What the figures are: split, metric, intervals, tests, and what is missing."""
    metrics = dict.fromkeys(table.main_metrics.values())
    seeds = table.rows["finished"].max()
    parts = [
        f"{table.split} {', '.join(metrics)}; mean ± 95 % t-interval over {seeds} seed{'s' if seeds != 1 else ''}"
        if metrics
        else "no metric to show"
    ]
    if table.over_items:
        parts.append("± items: half the 95 % interval over the test items (Poisson bootstrap), for these seeds")
    if table.baseline:
        parts.append(f"Δ and η over {table.entered} against {table.baseline} of the same seed")
    if table.reference and table.order != "mean_rank":
        what = "Δ" if table.order == "delta_i" else "the average"
        parts.append(f"paired t-tests of {what} against {table.reference}, Holm-corrected, level {LEVEL}")
    return "; ".join([*parts, *table.notes]) + "."


def colour_key(table: Table) -> str:
    """What colours mean; "" where nothing can be coloured."""
    if table.reference is None:
        return ""
    return f"Green, red: better, worse than {table.reference} by the same test of that column."


def _best(table: Table) -> str:
    rows, order = table.rows, table.order
    best = str(rows.index[0])
    what = {"delta_i": "Δ", "average": "average", "mean_rank": "mean rank"}[order]
    value = {"delta_i": f" ({signed(rows[order].iloc[0], '+.2f')} %)"}.get(order, f" ({rows[order].iloc[0]:.4g})")
    sentence = f"{best} is best by {what}{value}"
    reference, verdict = table.reference, rows["verdict"].iloc[0]
    if reference is None:
        return f"{sentence}; there is no row to test it against"
    if best == reference:
        return f"{sentence}; it is the reference of the tests"
    pairs = rows["pairs"].iloc[0]
    seeds = f"{pairs:.0f} seed{'s' if pairs != 1 else ''}"
    if verdict in (SAME, BETTER, WORSE):
        comparison = SAME + " from" if verdict == SAME else f"{verdict} than"
        return f"{sentence}; {comparison} {reference} (Holm p = {rows['p_holm'].iloc[0]:.2g}, {seeds})"
    if verdict == FEW:
        return f"{sentence}; not tested against {reference}: {seeds} in common, 3 are needed"
    return sentence


def _names(names: Sequence[str], most: int = 6) -> str:
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
