"""Whom a task's gradient helps: TAG's affinities of all pairs of tasks, as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mtlscale.records import RunRecord
from mtlscale.report.canvas import MOST_LINES, new_figure, style
from mtlscale.report.curves import last_traces
from mtlscale.report.layout import signed
from mtlscale.report.plotly_canvas import grid, label, new_plot
from mtlscale.report.traces import MOST_METHODS, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

TRACE = "affinity"
_WHAT = "row: whose gradient is stepped along; column: whose loss falls (blue) or rises (red)"


@dataclass(frozen=True)
class Affinity:
    """[T, T] mean over seeds of a method's affinities as they were last, NaN where none was measured; their tasks."""

    method: str
    seeds: int
    tasks: tuple[str, ...]
    values: NDArray[np.float64]

    @property
    def scale(self) -> float:
        """The largest between two tasks: what a task does to itself would hide the rest."""
        others = np.abs(np.nan_to_num(self.values[~np.eye(len(self.values), dtype=bool)]))
        return float(others.max(initial=0.0)) or 1.0

    @property
    def title(self) -> str:
        return f"{self.method}{f', mean of {self.seeds} seeds' if self.seeds > 1 else ''}"


def affinities(records: Sequence[RunRecord]) -> list[Affinity]:
    """Of each method that recorded any: a method traces the mean over the steps so far, so the last is of all."""
    found: dict[str, list[NDArray[np.float64]]] = {}
    names: dict[str, tuple[str, ...]] = {}
    for record in records:
        tasks = tuple(record.structure.get("tasks") or record.main_metrics)
        table = _table(last_traces(record).get(TRACE), len(tasks))
        if table is not None:
            found.setdefault(record.method, []).append(table)
            names[record.method] = tasks
    return [Affinity(method, len(of), names[method], _mean(of)) for method, of in list(found.items())[:MOST_METHODS]]


def affinity_figure(affinity: Affinity) -> Drawing:
    """The diagonal in grey; numbers in the cells of few tasks, in the power of ten above the map."""
    count = len(affinity.tasks)
    side = float(np.clip(0.55 * count, 3.0, 9.0))
    with style():
        figure = new_figure(side + 2.6, side + 1.2)
        panel = figure.subplots()
        off = np.where(np.eye(count, dtype=bool), np.nan, affinity.values)
        image = panel.imshow(off, cmap="RdBu", vmin=-affinity.scale, vmax=affinity.scale)
        panel.set_facecolor("#d9dbdf")
        bar = figure.colorbar(image, ax=panel, fraction=0.045, pad=0.02)
        bar.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]
        names = [shortened(task) for task in affinity.tasks]
        panel.set_xticks(range(count), names, rotation=40, ha="right", rotation_mode="anchor")
        panel.set_yticks(range(count), names)
        if count > 20:
            panel.tick_params(labelsize=7)
        panel.grid(visible=False)
        panel.tick_params(length=0)
        unit = f"; numbers × 1e{_numbers(panel, affinity)}" if count <= MOST_LINES else ""
        panel.set_title(f"affinity, {affinity.title}")
        figure.supxlabel(f"{_WHAT}{unit}", fontsize=7.5, color="#6b7280", wrap=True)
    return figure


def affinity_plot(affinity: Affinity) -> Figure:
    """The same for the page."""
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
    """Into the cells, over a power of ten, which is answered."""
    power = int(np.floor(np.log10(affinity.scale)))
    for (row, column), value in np.ndenumerate(affinity.values):
        if np.isnan(value):
            continue
        ink = "white" if row != column and abs(value) > 0.7 * affinity.scale else "#1f2328"
        text = signed(value / 10.0**power, "+.1f")
        panel.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)
    return power


def _table(value: Any, tasks: int) -> NDArray[np.float64] | None:
    """[T, T], NaN where there is none; None where the trace is no such table."""
    try:
        table = np.array(value, dtype=float)
    except (TypeError, ValueError):
        return None
    known = table.shape == (tasks, tasks) and bool(np.isfinite(table).any())
    return np.where(np.isfinite(table), table, np.nan) if known else None


def _mean(tables: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    there = np.isfinite(tables)
    total, count = np.where(there, tables, 0.0).sum(axis=0), there.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
