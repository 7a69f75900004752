"""Heat maps of TAG's affinities: how much the gradient of each task helps each other task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.charts.plotly_canvas import grid, label, new_plot
from mtlscale.report.formats.number_format import signed
from mtlscale.report.stats.curves import last_traces
from mtlscale.report.stats.traces import MOST_METHODS, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

TRACE = "affinity"
_EXPLANATION = "row: whose gradient is stepped along; column: whose loss falls (blue) or rises (red)"


@dataclass(frozen=True)
class Affinity:
    """The affinities of one method as last recorded, with their tasks.

    `values` [T, T] is the mean over seeds, NaN where none was measured.
    """

    method: str
    seeds: int
    tasks: tuple[str, ...]
    values: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """The largest magnitude between two different tasks.

        The effect of a task on itself would hide the others.
        """
        off_diagonal = np.abs(np.nan_to_num(self.values[~np.eye(len(self.values), dtype=bool)]))
        return float(off_diagonal.max(initial=0.0)) or 1.0

    @property
    def title(self) -> str:
        return f"{self.method}{f', mean of {self.seeds} seeds' if self.seeds > 1 else ''}"


def affinities(records: Sequence[RunRecord]) -> list[Affinity]:
    """Return the affinities of each method that recorded any.

    A method traces the mean over the steps so far, so its last value covers all steps.
    """
    tables: dict[str, list[NDArray[np.float64]]] = {}
    tasks_of: dict[str, tuple[str, ...]] = {}
    for record in records:
        tasks = tuple(record.structure.get("tasks") or record.main_metrics)
        table = _table(last_traces(record).get(TRACE), len(tasks))
        if table is not None:
            tables.setdefault(record.method, []).append(table)
            tasks_of[record.method] = tasks

    return [
        Affinity(method, len(method_tables), tasks_of[method], _mean(method_tables))
        for method, method_tables in list(tables.items())[:MOST_METHODS]
    ]


def affinity_figure(affinity: Affinity) -> Drawing:
    """Draw the map with a grey diagonal.

    With few tasks the cells hold numbers, in the power of ten named below the map.
    """
    count = len(affinity.tasks)
    side = float(np.clip(0.55 * count, 3.0, 9.0))

    with style():
        figure = new_figure(side + 2.6, side + 1.2)
        panel = figure.subplots()
        off_diagonal = np.where(np.eye(count, dtype=bool), np.nan, affinity.values)
        image = panel.imshow(off_diagonal, cmap="RdBu", vmin=-affinity.scale, vmax=affinity.scale)
        panel.set_facecolor("#d9dbdf")
        colorbar = figure.colorbar(image, ax=panel, fraction=0.045, pad=0.02)
        colorbar.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]
        names = [shortened(task) for task in affinity.tasks]
        panel.set_xticks(range(count), names, rotation=40, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(count), names)
        if count > 20:
            panel.tick_params(labelsize=7)
        panel.grid(visible=False)
        panel.tick_params(length=0)
        unit = f"; numbers × 1e{_numbers(panel, affinity)}" if count <= MOST_LINES else ""
        panel.set_title(f"affinity, {affinity.title}")
        figure.supxlabel(f"{_EXPLANATION}{unit}", fontsize=7.5, color="#6b7280", wrap=True)

    return figure


def affinity_plot(affinity: Affinity) -> Figure:
    """Draw the same as a plotly figure for the page."""
    count = len(affinity.tasks)
    names = [label(shortened(task)) for task in affinity.tasks]

    figure = new_plot(160 + 26 * max(8, count))
    figure.add_heatmap(
        z=grid(np.where(np.eye(count, dtype=bool), np.nan, affinity.values)),
        x=names,
        y=names,
        zmin=-affinity.scale,
        zmax=affinity.scale,
        colorscale="RdBu",
        xgap=1,
        ygap=1,
        hovertemplate="%{y} on %{x}: %{z:.3g}<extra></extra>",
    )

    figure.update_yaxes(autorange="reversed")
    return figure


def _numbers(panel: Axes, affinity: Affinity) -> int:
    """Write the numbers into the cells, divided by a power of ten, and return its exponent."""
    power = int(np.floor(np.log10(affinity.scale)))
    for (row, column), value in np.ndenumerate(affinity.values):
        if np.isnan(value):
            continue
        ink = "white" if row != column and abs(value) > 0.7 * affinity.scale else "#1f2328"
        text = signed(value / 10.0**power, "+.1f")
        panel.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
    return power


def _table(value: Any, tasks: int) -> NDArray[np.float64] | None:
    """Return the trace as [T, T], NaN where a value is missing; None if it is no such table."""
    try:
        table = np.array(value, dtype=float)
    except (TypeError, ValueError):
        return None
    valid = table.shape == (tasks, tasks) and bool(np.isfinite(table).any())
    return np.where(np.isfinite(table), table, np.nan) if valid else None


def _mean(tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    measured = np.isfinite(tables)
    total, count = np.where(measured, tables, 0.0).sum(axis=0), measured.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
