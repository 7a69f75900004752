"""Texts around a table: its legend, its colours, and the runs that did not finish."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from mtlscale.report.formats.number_format import SCORE_NAMES
from mtlscale.report.stats.statistics import LEVEL
from mtlscale.report.tables.columns import unit_text

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table


def failures(table: Table) -> list[tuple[str, int, str, str]]:
    """Return (method, seed, status, cause) of each run that did not finish."""
    rows = table.failures[["method", "seed", "status", "error"]].values.tolist()
    return [(method, seed, status, error or "no cause recorded") for method, seed, status, error in rows]


def run_ids(table: Table) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the ids of runs, which `show`, `rerun` and `export` take: (header, rows), a column for each seed."""
    ended = pd.concat([table.runs[["method", "seed", "run_id"]], table.failures[["method", "seed", "run_id"]]])
    ids = {(method, seed): run_id for method, seed, run_id in ended.itertuples(index=False)}
    seeds = sorted(ended["seed"].unique())
    rows = [
        (str(method), *(ids.get((method, seed), "–") for seed in seeds))
        for method in table.rows.index
        if any((method, seed) in ids for seed in seeds)
    ]
    return ("method", *(f"seed {seed}" for seed in seeds)), rows


def legend(table: Table) -> str:
    """Return the legend of the figures: split, metric, intervals, tests, and missing parts."""
    seeds = table.rows["finished"].max()
    parts = [
        f"{_metric_legend(table)}; mean ± 95 % t-interval over {seeds} seed{'s' if seeds != 1 else ''}"
        if table.main_metrics
        else "no metric to show"
    ]

    if table.over_items:
        parts.append("± items: half the 95 % interval over the test items (Poisson bootstrap), for these seeds")
    if table.baseline:
        parts.append(f"Δ and η over {table.entered} against {table.baseline} of the same seed")
    if table.reference and table.order != "mean_rank":
        parts.append(
            f"paired t-tests of {SCORE_NAMES[table.order]} against {table.reference}, Holm-corrected; "
            f"a p below {LEVEL} counts (at 0.05, tests on small test sets err more often than 5 in 100 times)"
        )

    return "; ".join([*parts, *table.notes]) + "."


def _metric_legend(table: Table) -> str:
    """Name the metrics of the figures, and what the average is the mean of."""
    metrics = list(dict.fromkeys(table.main_metrics.values()))
    if len(metrics) != 1:
        return f"{table.split} {', '.join(metrics)}"
    mean = f"average: {table.split} {metrics[0]}{unit_text(metrics[0])}"
    return f"{mean}, mean over {len(table.tasks)} tasks" if len(table.tasks) > 1 else mean


def colour_key(table: Table) -> str:
    """Return the meaning of the colours; "" where nothing can be coloured."""
    if table.reference is None:
        return ""
    return f"Green: significantly better than {table.reference} in this column; red: worse."
