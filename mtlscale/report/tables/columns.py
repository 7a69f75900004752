"""The columns of a leaderboard's table, which every form of the table shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.config import UserError
from mtlscale.metrics import FIGURES, metric_info
from mtlscale.report.cells.number_format import EMPTY, SCORE_NAMES, decimals
from mtlscale.report.cells.sheet import Block, Column, TableCell, number_column
from mtlscale.report.stats.frames import units_column
from mtlscale.report.stats.statistics import BETTER, LEVEL, OPEN, SAME, WORSE

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

# What balancing changed in the optimiser's steps, by the names in the trace `survival` of a record's epochs.
SURVIVAL = {
    "gradient_to_equal": ("grad ∠ equal", "cosine between the balanced gradient and that of equal weights"),
    "step_to_equal": ("step ∠ equal", "cosine between the optimiser's step and the one that equal weights would make"),
    "step_to_gradient": ("step ∠ grad", "cosine between the balanced gradient, downhill, and the optimiser's step"),
}
LAST_STEP = "last step"
MOST_TASKS = 5  # tasks beside the columns of quality; more go to a table of their own
_BADGES = {BETTER: "better", WORSE: "worse", SAME: "same", OPEN: "open"}
_VERDICT_ORDER = {BETTER: 3.0, SAME: 2.0, OPEN: 1.0, WORSE: 0.0}


def columns(table: Table) -> list[Column]:
    """Return every column that has something to show, in order: quality, tasks, cost."""
    available = [*_quality(table), *_by_task(table), *_split_figures(table), *_fronts(table), *_cost(table)]
    shown = [column for column in available if any(text != EMPTY for text in column.texts)]
    return _coloured(table, shown)


def method_column(methods: Iterable[object], texts: Sequence[str] = (), roles: Sequence[str] = ()) -> Column:
    """Return the column of the rows' names; `texts` may differ from what a filter of methods goes by."""
    labels = [str(method) for method in methods]
    roles = roles or [""] * len(labels)
    cells = [
        TableCell(text, label, badge=role) for text, label, role in zip(texts or labels, labels, roles, strict=True)
    ]
    return Column(header="method", help="as the experiment names it", cells=cells, right=False)


def _quality(table: Table) -> Iterator[Column]:
    """Yield the columns of scores over all tasks, of the verdict and of the runs."""
    rows, base = table.rows, table.baseline
    unit, domain = _shared_unit(table), " of the source" if table.domains else ""
    after = _measure(table, "last", LAST_STEP if table.domains else "last epoch",
                     f"mean over tasks{unit}, after the last epoch", detail=not table.domains)  # fmt: skip

    yield _measure(
        table,
        "average",
        "average ± seeds" if table.over_items else "average",
        f"mean over tasks{unit}, at the epoch chosen on validation{domain}",
    )
    if table.domains:
        yield after
    yield from _items(table)
    yield _measure(
        table, "part", table.part, f"the same mean over {table.part}, a part of test without what training saw"
    )
    yield _measure(table, "delta_i", "Δ %", f"gain over {base}: mean within each task, then over tasks", sign="+")
    yield _number(rows, "safeness", "η %", f"share of metrics no worse than {base}", True, digits=0)
    yield _number(rows, "mean_rank", "rank", "mean over tasks of the rank by the main metric", False, digits=1)
    yield _verdicts(table)
    yield _p_values(table)
    yield _runs(rows)
    if not table.domains:
        yield after

    # With as many metrics in every task, or one, definitions of Δ are the same number.
    for name, header, definition in (
        ("delta_flat", "Δ flat %", "mean over all metrics"),
        ("delta_main", "Δ main %", "one main metric per task"),
    ):
        if not np.allclose(rows[name], rows["delta_i"], equal_nan=True):
            help = f"gain over {base}: {definition}"
            yield _measure(table, name, header, help, sign="+", detail=name != table.order)

    help = f"mean error over tasks, as a ratio to that of {base}; below 1 is better"
    yield _measure(table, "relative_error", "e_rel", help, detail=True)
    if len(table.tasks) > 1:
        yield _measure(table, "total_error", "total", "sum over tasks of the error in percent", detail=True)


def _by_task(table: Table) -> Iterator[Column]:
    """Yield the column of each task's main metric."""
    unit = _shared_unit(table)
    for task, metric in table.main_metrics.items():
        header, help = task if unit else f"{task} {metric}", f"{task}: {metric}{unit_text(metric)}"
        yield _measure(table, table.main_column(task), header, help, block="tasks")
        if (column := units_column(task, metric)) in table.rows:
            help = f"{task}: {metric} in the units of the data, by the deviation that its targets were divided by"
            yield _measure(table, column, f"{task} {metric} in units", help, block="tasks")


def _split_figures(table: Table) -> Iterator[Column]:
    """Yield the columns of what evaluations measured on the split beside its metrics."""
    for name, figure in FIGURES.items():
        if name in table.rows and figure.of == "split":
            help = f"{figure.help}, in {figure.unit}"
            yield _measure(table, name, figure.header, help)


_FRONTS = (
    (
        "hypervolume",
        "front %",
        "hypervolume: the share of all possible results that some ray is better than",
    ),
    (
        "spread",
        "spread %",
        "how far a front reaches: best less worst of a task, of its range, mean over tasks",
    ),
    ("rays_found", "rays", "networks on a front that no other of the same front is better than in all tasks"),
    ("off_ray", "off ray °", "angle between the losses and the ray that the preference asks for, mean over rays"),
)


def _fronts(table: Table) -> Iterator[Column]:
    """Yield the columns of rows with several solutions; their other columns are those of the central one."""
    for name, header, help in _FRONTS:
        if name in table.rows:
            yield _measure(table, name, header, help, detail=name == "spread")


def _cost(table: Table) -> Iterator[Column]:
    """Yield the columns of times, memory, size of the network, and events."""
    rows, ref = table.rows, table.reference
    help = "wall clock of a run, training and validation, in seconds"
    yield _number(rows, "seconds", "s/run", help, False, block="cost")
    yield from _phases(rows)

    costs = (
        ("samples_per_second", "samples/s", "training samples per second of steps"),
        ("step_ratio", "step ×", f"median time of a step, as a ratio to {ref}"),
        ("peak_memory_mb", "MB", "peak memory"),
        ("parameters", "params", "number of parameters"),
    )
    for name, header, help in costs:
        speed = name == "samples_per_second"
        yield _number(rows, name, header, help, speed, block="cost", detail=speed)

    for name, (header, help) in SURVIVAL.items():
        yield _number(rows, name, header, help, None, digits=2, block="cost", detail=True)

    for name, figure in FIGURES.items():
        if name in rows and figure.of == "network":
            header = f"{figure.header} {figure.unit}" if figure.unit in ("M", "ms") else figure.header
            yield _number(rows, name, header, figure.help, figure.higher_is_better, block="cost")
    yield _events(rows)


def _coloured(table: Table, columns: Sequence[Column]) -> list[Column]:
    """Mark in the columns of measures the rows that the verdict's test finds better and worse in them."""
    signs = table.signs([column.name for column in columns if column.tested], table.reference)
    comparable = not table.incomparable
    coloured = []
    for column in columns:
        column_signs = signs[column.name] if column.tested else [0] * len(column.cells)
        cells = [
            cell._replace(mark=f"{cell.mark if comparable else ''} {('', 'gain', 'loss')[sign]}".strip())
            for cell, sign in zip(column.cells, column_signs, strict=True)
        ]
        coloured.append(replace(column, cells=cells, sorts=column.name == table.order))
    return coloured


def by_block(columns: Sequence[Column]) -> list[list[Column]]:
    """Return the columns of quality, tasks and cost."""
    blocks: tuple[Block, ...] = ("quality", "tasks", "cost")
    return [[column for column in columns if column.block == block] for block in blocks]


def _shared_unit(table: Table) -> str:
    """Return a text such as " of test accuracy in %" where all tasks share one main metric, else nothing."""
    metrics = list(dict.fromkeys(table.main_metrics.values()))
    return f" of {table.split} {metrics[0]}{unit_text(metrics[0])}" if len(metrics) == 1 else ""


def unit_text(metric: str) -> str:
    """Return " in " and the unit of a metric, or nothing where it has none."""
    try:
        unit = metric_info(metric).unit
    except UserError:  # of a plugin that is not loaded
        return ""
    return f" in {unit}" if unit else ""


def _measure(table: Table, name: str, header: str, help: str, *, sign: str = "", **settings: Any) -> Column:
    """Return the column of a mean with its interval; `sign` "+" is for differences."""
    values = table.rows[name]
    form = f"{sign}.{2 if sign else decimals(values)}f"
    higher = table.higher(name) if values.notna().any() else None
    widths = table.rows[f"{name}_ci"]
    return number_column(header, values, form, widths, help=help, name=name, tested=True, higher=higher, **settings)


def _number(
    rows: pd.DataFrame,
    name: str,
    header: str,
    help: str,
    higher: bool | None,
    digits: int | None = None,
    **settings: Any,
) -> Column:
    digits = decimals(rows[name], figures=3, least=0) if digits is None else digits
    quality = settings.get("block") != "cost"  # fast methods need not be good
    form = f",.{digits}f"
    return number_column(header, rows[name], form, help=help, name=name, higher=higher, emphasis=quality, **settings)


def _items(table: Table) -> Iterator[Column]:
    """Yield the columns of how much the average, and its difference to the reference, depend on the test items."""
    rows, form = table.rows, f".{decimals(table.rows['average'])}f"
    help = "half the 95 % interval of the average over test items (bootstrap)"
    yield number_column("± items", rows["average_items"], form, help=help, higher=False, emphasis=False, detail=True)

    differences, widths = rows["difference_average"], rows["difference_items"]
    column = number_column(
        f"− {table.reference} ± items",
        differences.where(widths.notna()),
        f"+{form}",
        widths,
        help=f"difference of the average to {table.reference}, and half its 95 % interval over test items (bootstrap)",
        higher=table.higher("average") if differences.notna().any() else None,
        emphasis=False,
        of_test=True,
        detail=True,
    )
    yield column


def _runs(rows: pd.DataFrame) -> Column:
    """Return the column of finished of planned runs, with what became of the others: "2/3, 1 diverged"."""
    cells = []
    counts = rows[["finished", "failed", "diverged", "planned"]].itertuples(index=False)
    for finished, failed, diverged, planned in counts:
        failures = [f"{count} {outcome}" for count, outcome in ((failed, "failed"), (diverged, "diverged")) if count]
        cells.append(TableCell(", ".join([f"{finished}/{planned}", *failures]), float(finished)))
    return Column(header="runs", help="finished of planned", cells=cells, name="runs", higher=True, of_test=True)


def _verdicts(table: Table) -> Column:
    texts = [text if isinstance(text, str) and text else EMPTY for text in table.rows["verdict"]]
    items = ", and by the interval over test items" if table.over_items else ""
    return Column(
        header=f"vs {table.reference}",
        help=f"by a paired t-test of {SCORE_NAMES[table.order]} over seeds, Holm-corrected, level {LEVEL}{items}",
        cells=[TableCell(text, _VERDICT_ORDER.get(text), badge=_BADGES.get(text, "")) for text in texts],
        name="verdict",
        higher=True,
        of_test=True,
    )


def _p_values(table: Table) -> Column:
    cells = [TableCell(EMPTY if np.isnan(value) else f"{value:.2g}", value) for value in table.rows["p_holm"]]
    help = "two-sided p-value of that test, Holm-corrected over all methods"
    return Column(header="p", help=help, cells=cells, name="p", higher=False, of_test=True)


def _phases(rows: pd.DataFrame) -> list[Column]:
    """Return the columns of the seconds before the last phase and of all; none where no method has such phases."""
    if rows["phase_seconds"].isna().all():
        return []
    help = "seconds of the phases before the last, a search say; once: runs share it, counted as it cost once"
    phases = _number(rows, "phase_seconds", "+ phases s", help, False, block="cost", detail=True)
    cells = [
        cell._replace(text=f"{cell.text} once") if shared else cell
        for cell, shared in zip(phases.cells, rows["phases_shared"] > 0, strict=True)
    ]
    total = _number(rows, "total_seconds", "= total s", "seconds of all phases together", False, block="cost")
    return [replace(phases, cells=cells), total]


def _events(rows: pd.DataFrame) -> Column:
    """Return the column of counters above zero, summed over runs: solver failures, clamps, skipped steps."""
    events = rows.filter(regex=r"^counter\.").rename(columns=lambda name: name.removeprefix("counter."))
    texts = [
        ", ".join(f"{name} {count:,.0f}" for name, count in row.items() if count > 0) or EMPTY
        for row in events.to_dict("records")
    ]
    sums = events.sum(axis=1).astype(float)
    help = "solver failures, clamps and skipped steps, over all runs"
    return Column(
        header="events",
        help=help,
        cells=list(map(TableCell, texts, sums)),
        name="events",
        block="cost",
        higher=False,
        prose=True,
    )
