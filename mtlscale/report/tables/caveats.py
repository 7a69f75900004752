"""Texts below a table: its legend, the runs that did not finish, and notes against reading too much into it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from mtlscale.metrics import known_metric
from mtlscale.report.cells.number_format import SCORE_NAMES, about, counted, rounded_down
from mtlscale.report.stats.statistics import FEWEST_SEEDS, LEVEL, OPEN, smallest_difference
from mtlscale.report.tables.table import Table, unit_text


class Failure(NamedTuple):
    """Runs that did not finish: which, how they ended, and why."""

    runs: str
    status: str
    cause: str


def smallest(table: Table, rows: pd.DataFrame) -> tuple[int, tuple[float, float]]:
    """Return the most seeds shared with the reference, and the least and most that a network has to differ from it by.

    A method's figure is the t-test's threshold for its own spread, at the step of Holm's correction that comes after
    the methods whose difference is found, in the numbers that tests compare. So no difference that is found lies below
    the least, and none that the seeds leave open above the most. (0, NaN) where no test is made; floors do not count.
    """
    nothing = math.nan, math.nan
    if table.reference is None or table.order == "mean_rank":
        return 0, nothing

    gains = table.by_seed(table.tested(table.order))
    differences = gains.drop(columns=table.reference).sub(gains[table.reference], axis=0)
    pairs = differences.notna().sum()
    seeds = int(pairs.max()) if len(pairs) else 0

    spreads = differences.std()
    spreads = spreads.where(spreads > 1e-12 * differences.abs().max(), 0.0)  # rounding is no spread
    p_values = rows["p_holm"]
    tests = max(1, int(p_values.notna().sum()) + table.untested - int((p_values < LEVEL).sum()))
    tested = pairs.index[(pairs >= FEWEST_SEEDS) & ~pairs.index.isin(table.floors)]
    needed = [
        smallest_difference(deviation, int(shared), tests)
        for deviation, shared in zip(spreads[tested], pairs[tested], strict=True)
    ]
    return seeds, (min(needed), max(needed)) if needed else nothing


def resolution(table: Table) -> list[str]:
    """Return the note on the difference to the reference that the seeds can show, if there is one."""
    seeds = table.shared_seeds
    if seeds == 0:
        return []
    if seeds < FEWEST_SEEDS:
        return [f"with {counted(seeds, 'seed') if seeds > 1 else 'one seed'} no difference can be shown"]
    if math.isinf(table.detectable[0]):
        return [f"a difference that is the same in all of {seeds} seeds cannot be shown"]
    return [text] if (text := detectable_text(table)) else []


def detectable_text(table: Table) -> str:
    """Return what networks have to differ by from the reference; "" where that is not known."""
    least, most = table.detectable
    if not 0 < least < math.inf:
        return ""

    noun = "log point" if table.in_logs(table.order) else unit(table)
    low = rounded_down(least)  # so that no difference that is found reads as smaller
    if math.isinf(most):
        size = f"at least {about(low, noun)}"
    elif (high := float(f"{most:.2g}")) > low:
        size = f"{low:g} to {about(high, noun)}"
    else:
        size = f"about {about(low, noun)}"
    needed = f"{size} of {SCORE_NAMES[table.order]}" + ("" if size.startswith("about") else ", by its spread")
    return f"with {table.shared_seeds} seeds, a network has to differ from {table.reference} by {needed}"


def unit(table: Table) -> str:
    """Return "point" where the column that rows are sorted by is in percent, else ""."""
    return "point" if table.relative or (table.order == "average" and in_percent(table)) else ""


def in_percent(table: Table) -> bool:
    """Return whether the average over tasks is in percent."""
    metrics = list(map(known_metric, table.main_metrics.values()))
    return bool(metrics) and all(metric is not None and metric.unit == "%" for metric in metrics)


def failures(table: Table) -> list[Failure]:
    """Return each run that did not finish."""
    rows = table.failures[["method", "seed", "status", "error"]].values.tolist()
    return [Failure(f"{method}, seed {seed}", status, cause_of(error)) for method, seed, status, error in rows]


def cause_of(error: object) -> str:
    """Return why a run did not finish, in words; the error of a run is NaN where its record has none."""
    return error if isinstance(error, str) and error.strip() else "no cause recorded"


def legend(table: Table) -> str:
    """Return the legend of the figures: split, metric, intervals, tests, and missing parts."""
    return "; ".join([*definitions(table), *table.notes]) + "."


def definitions(table: Table) -> Iterator[str]:
    """Yield what the figures of a table are and how they are tested."""
    seeds = int(table.rows["finished"].max())
    if table.main_metrics:
        yield _metric_legend(table)
        yield f"{'±: half the 95 % interval' if seeds >= FEWEST_SEEDS else 'mean'} over {counted(seeds, 'seed')}"
    else:
        yield "no metric to show"

    if table.over_items:
        yield "± items: the same over the test items, for these seeds"
    if table.baseline:
        yield f"Δ, η: {table.entered} relative to {table.baseline} of the same seed"
    if table.reference is None or table.order == "mean_rank":
        return

    in_logs = ", errors as log ratios (10 log points are about 10 %)," if table.in_logs(table.order) else ""
    tested = f"{SCORE_NAMES[table.order]}{in_logs} against {table.reference}"
    yield f"verdicts: paired t-tests of {tested}, Holm-corrected, p < {LEVEL}"
    if table.over_items:
        yield (
            f"they also need − {table.reference} ± items without 0; {OPEN}: seeds and test items do not agree, or "
            f"there are fewer than {FEWEST_SEEDS} seeds"
        )


def _metric_legend(table: Table) -> str:
    """Name the metrics of the figures, and what the average is the mean of."""
    metrics = list(dict.fromkeys(table.main_metrics.values()))
    if len(metrics) != 1:
        return f"{table.split} {', '.join(metrics)}"
    mean = f"average: {table.split} {metrics[0]}{unit_text(metrics[0])}"
    return f"{mean}, mean of {len(table.tasks)} tasks" if len(table.tasks) > 1 else mean


def colour_key(table: Table) -> str:
    """Return the meaning of the colours; "" where nothing can be coloured."""
    if table.reference is None:
        return ""
    return f"Green: significantly better than {table.reference} in this column; red: worse."
