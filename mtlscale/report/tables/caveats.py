"""Texts below a table: its legend, the runs that did not finish, and notes against reading too much into it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from mtlscale.metrics import METRICS
from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import SCORE_NAMES, about, counted, names
from mtlscale.report.stats.near_zero import Entry
from mtlscale.report.stats.statistics import FEWEST_SEEDS, LEVEL, smallest_difference
from mtlscale.report.tables.columns import SURVIVAL, unit_text
from mtlscale.report.tables.table import Table

_MOST_TASKS = 3  # in a note
RELATIVE_MARGIN = 0.01  # relative distance to equal weights: methods that never went further did not act


def smallest(table: Table) -> tuple[int, float]:
    """Return the most seeds that a method shares with the reference, and the smallest difference they could show.

    The difference is one of the column that the tests are made on; (0, NaN) where no test is made.
    """
    if table.reference is None or table.order == "mean_rank":
        return 0, math.nan

    scores = table.runs.pivot(index="seed", columns="method", values=table.order)
    differences = scores.drop(columns=table.reference).sub(scores[table.reference], axis=0)

    pairs = differences.notna().sum()
    seeds = int(pairs.max()) if len(pairs) else 0
    tests = int((pairs >= FEWEST_SEEDS).sum()) + table.untested
    return seeds, smallest_difference(differences.std()[pairs == seeds], seeds, tests) if seeds else math.nan


def resolution(table: Table) -> list[str]:
    """Return the note on the smallest difference to the reference that the seeds could show, if there is one."""
    seeds, difference = smallest(table)
    if seeds == 0 or difference == 0:
        return []
    if seeds < FEWEST_SEEDS:
        return [f"with {counted(seeds, 'seed') if seeds > 1 else 'one seed'} no difference can be shown"]

    score_name = SCORE_NAMES[table.order]
    if math.isinf(difference):
        return [f"with {seeds} seeds that differ by nothing, no difference of {score_name} can be shown"]
    return [
        f"with {seeds} seeds, differences of {score_name} below about {about(difference, unit(table))} cannot be shown"
    ]


def unit(table: Table) -> str:
    """Return "point" where the column that rows are sorted by is in percent, else ""."""
    return "point" if table.relative or (table.order == "average" and in_percent(table)) else ""


def in_percent(table: Table) -> bool:
    """Return whether the average over tasks is in percent."""
    metrics = set(table.main_metrics.values())
    return bool(metrics) and all(metric in METRICS and METRICS[metric].unit == "%" for metric in metrics)


def near_zero_notes(
    near: Sequence[Entry], means: pd.DataFrame, baseline: str, constant: str | None, order: str
) -> Iterator[str]:
    """Yield the notes on metrics near 0: the tasks that have each, and the column that rows are compared by instead."""
    for metric in dict.fromkeys(metric for _, metric in near):
        entries = [entry for entry in near if entry[1] == metric]
        sizes = {entry: abs(float(means[entry][baseline])) for entry in entries}
        smallest_entry = min(sizes, key=sizes.__getitem__)

        values = f"{means[smallest_entry][baseline]:.2g}"
        if constant is not None and not math.isnan(floor := float(means[smallest_entry][constant])):
            values += f"; {constant}: {floor:.2g}"
        task_note = f" in {smallest_entry[0]}" if len(entries) > 1 else ""
        tasks = names([task for task, _ in entries], _MOST_TASKS)
        yield f"Δ rests on {metric} of {tasks}, whose baseline is near 0 ({values}{task_note})"

    if not near:
        return

    if order == "delta_i":
        yield "small differences of such a metric are a large Δ"
    else:
        column_name = "Δ main" if order == "delta_main" else "the average"
        yield f"rows are sorted and tested by {column_name}, the main metric of each task, instead"


def departures(records: Sequence[RunRecord]) -> dict[str, float]:
    """Return method -> how far its finished runs went from equal weighting at most.

    Methods are left out if one of their finished runs does not record it.
    """
    largest: dict[str, float] = {}
    for record in records:
        if record.status == "finished":
            value = math.nan if record.departure is None else record.departure
            largest[record.method] = float(np.maximum(largest.get(record.method, 0.0), value))  # NaN stays
    return {method: value for method, value in largest.items() if not math.isnan(value)}


def survival(records: Sequence[RunRecord]) -> pd.DataFrame:
    """Return method x cosine: the means over runs of what balancing changed in the optimiser's steps."""
    entries = [
        {"method": record.method, **record.survival}
        for record in records
        if record.status == "finished" and record.survival
    ]
    frame = pd.DataFrame(entries, columns=["method", *SURVIVAL]).set_index("method")
    return frame.astype(float).groupby(level=0).mean()


def idle(records: Sequence[RunRecord]) -> dict[str, str]:
    """Return the methods that never left equal weighting, though they are not equal weighting: label -> note."""
    # With one task there is nothing to balance, except perhaps in an earlier search.
    specs = {record.method: record.spec.get("balancer", "equal") for record in records if len(record.main_metrics) > 1}
    balancers = {
        method: spec.get("name", "equal") if isinstance(spec, dict) else spec for method, spec in specs.items()
    }
    equal_method = next((method for method, name in balancers.items() if name == "equal"), None)
    repeats = "its row repeats equal weighting" if equal_method is None else f"its row repeats {equal_method}"

    notes = {}
    for method, departure in departures(records).items():
        if departure < RELATIVE_MARGIN and balancers.get(method, "equal") != "equal":
            kappas = [
                abs(float(kappa))
                for record in records
                if record.method == method
                for epoch in record.epochs
                if isinstance(kappa := epoch.traces.get("kappa"), int | float) and math.isfinite(kappa)
            ]
            kappa = f" (κ at most {max(kappas):.2g})" if kappas else ""
            share = f"{100 * departure:.2g} %" if departure >= 1e-6 else "0.0001 %"
            notes[method] = f"{method} never left equal weighting: weights within {share} of 1/T{kappa}; {repeats}"

    return notes


def failures(table: Table) -> list[tuple[str, int, str, str]]:
    """Return (method, seed, status, cause) of each run that did not finish."""
    rows = table.failures[["method", "seed", "status", "error"]].values.tolist()
    return [(method, seed, status, error or "no cause recorded") for method, seed, status, error in rows]


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
