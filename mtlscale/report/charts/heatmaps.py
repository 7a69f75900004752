"""Heat maps of matrices that objectives leave with the last epoch: TOMATO's norms of θˢ by topic and task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.stats.curves import last_traces

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PANELS = 12  # methods with a panel


def matrices(records: Sequence[RunRecord]) -> list[str]:
    """Return the names of matrices that finished runs recorded last; affinities have pictures of their own."""
    traces_of_runs = [last_traces(record) for record in _finished(records)]
    names = dict.fromkeys(name for traces in traces_of_runs for name, value in traces.items() if _is_matrix(value))
    return [name for name in names if name != "affinity"]


def heat_figure(records: Sequence[RunRecord], trace: str) -> Figure:
    """Draw the matrix of each method's first finished run, one panel per method.

    Rows need not correspond between runs, so there is no mean over them.
    """
    first_runs: dict[str, tuple[RunRecord, np.ndarray]] = {}
    for record in _finished(records):
        if record.method not in first_runs and _is_matrix(value := last_traces(record).get(trace)):
            first_runs[record.method] = record, np.array(value, dtype=float)

    shown = list(first_runs.values())[:MOST_PANELS]
    heights = [0.9 + 0.22 * min(len(values), 20) for _, values in shown]

    with style():
        figure = new_figure(7.0, sum(heights))
        panels = figure.subplots(len(shown), 1, height_ratios=heights, squeeze=False)[:, 0]
        for panel, (record, values) in zip(panels, shown, strict=True):
            _draw(panel, values, record, trace)
    return figure


def _draw(panel: Axes, values: np.ndarray, record: RunRecord, trace: str) -> None:
    image = panel.imshow(values, aspect="auto", cmap="viridis", vmin=0.0 if values.min() >= 0 else None)
    panel.figure.colorbar(image, ax=panel, fraction=0.04, pad=0.01)
    panel.set_title(f"{record.method}, seed {record.seed}: {trace}")
    panel.grid(visible=False)
    tasks = list(record.main_metrics)
    for axis, size in ((panel.xaxis, values.shape[1]), (panel.yaxis, values.shape[0])):
        if size == len(tasks) and size <= 2 * MOST_LINES:
            axis.set_ticks(range(size), tasks)
        elif size <= MOST_LINES:
            axis.set_ticks(range(size), [str(index + 1) for index in range(size)])
    if values.shape[1] == len(tasks) <= 2 * MOST_LINES:
        panel.tick_params(axis="x", rotation=40)


def _finished(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.status == "finished" and record.epochs]


def _is_matrix(value: object) -> bool:
    """Return whether a value is a list of rows of equally many finite numbers."""
    if not (isinstance(value, list) and value and all(isinstance(row, list) and row for row in value)):
        return False
    finite = all(isinstance(entry, int | float) and np.isfinite(entry) for row in value for entry in row)
    return finite and len({len(row) for row in value}) == 1
