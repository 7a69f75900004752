"""Heat maps of matrices that objectives leave with the last epoch: TOMATO's norms of θˢ by topic and task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import Axis, Chart, HeatMap, Panel
from mtlscale.report.stats.curves import last_traces
from mtlscale.report.stats.traces import shortened

MOST_PANELS = 12  # methods with a panel


def matrices(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of matrices that finished runs recorded last; affinities have pictures of their own."""
    traces_of_runs = [last_traces(record) for record in _finished(records)]
    names = dict.fromkeys(name for traces in traces_of_runs for name, value in traces.items() if _is_matrix(value))
    return [name for name in names if name != "affinity"]


def heat_chart(records: Sequence[RunRecord], trace: str) -> Chart:
    """Return the matrix of each method's first finished run, one panel per method.

    Rows need not correspond between runs, so there is no mean over them.
    """
    first_runs: dict[str, tuple[RunRecord, np.ndarray]] = {}
    for record in _finished(records):
        if record.method not in first_runs and _is_matrix(value := last_traces(record).get(trace)):
            first_runs[record.method] = record, np.array(value, dtype=float)

    shown = list(first_runs.values())[:MOST_PANELS]
    return Chart(
        panels=[_panel(values, record) for record, values in shown],
        title=trace,
        file=f"heatmap_{trace}",
        height=0.4 + sum(0.9 + 0.22 * min(len(values), 20) for _, values in shown),
    )


def _panel(values: np.ndarray, record: RunRecord) -> Panel:
    tasks, (rows, columns) = list(record.main_metrics), values.shape
    heat = HeatMap(values=values, colors="viridis", low=0.0 if values.min() >= 0 else None, scale=True)
    y = Axis(names=_names(rows, tasks), reverse=True)
    return Panel(marks=[heat], title=f"{record.method}, seed {record.seed}", x=Axis(names=_names(columns, tasks)), y=y)


def _names(count: int, tasks: Sequence[str]) -> list[str]:
    """Return the names of rows or columns: the tasks, or numbers."""
    return list(tasks) if count == len(tasks) else [str(index + 1) for index in range(count)]


def square_map(
    values: np.ndarray, tasks: Sequence[str], longest: int, *, low: float, high: float,
    texts: Sequence[Sequence[str]] = (), colors: Literal["redblue", "blues"] = "redblue",
    hover: str = "{row}, {column}: {value:.3g}",
) -> Panel:  # fmt: skip
    """Return a matrix [T, T] of tasks without its diagonal, as the effect of a task on itself would hide the others."""
    off_diagonal = np.where(np.eye(len(values), dtype=bool), np.nan, values)
    heat = HeatMap(values=off_diagonal, texts=texts, low=low, high=high, colors=colors, scale=True, hover=hover)
    names = Axis(names=tasks, ticks={task: shortened(task, longest) for task in tasks}, grid=False)
    return Panel(marks=[heat], x=names, y=replace(names, reverse=True))


def _finished(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status == "finished" and record.epochs]


def _is_matrix(value: object) -> bool:
    """Return whether a value is a list of rows of equally many finite numbers."""
    if not (isinstance(value, list) and value and all(isinstance(row, list) and row for row in value)):
        return False
    finite = all(isinstance(entry, int | float) and np.isfinite(entry) for row in value for entry in row)
    return finite and len({len(row) for row in value}) == 1
