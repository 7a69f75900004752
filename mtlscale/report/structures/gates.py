"""Numbers that a method learned for each task and that move over the epochs: gates, weights, shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.charts.colors import GREY, colors
from mtlscale.report.charts.plotly_canvas import cell, label, numbers, panel_grid
from mtlscale.report.stats.traces import by_method, last_values, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

# Trace -> its title, and its neutral value, if any: as likely as not, or a weight like the others'.
GATE_KINDS: dict[str, tuple[str, float | None]] = {
    "gates": ("gate α", None),
    "task_weights": ("learned task weight", 1.0),
    "sharing": ("probability of sharing", 0.5),
}


def gate_figure(frame: pd.DataFrame, trace: str) -> Drawing:
    """Draw a row per method: bars of the last values with seeds as points, beside them the mean over seeds by epoch."""
    methods = by_method(frame)
    trace_title, neutral = GATE_KINDS[trace]
    most = max(rows["task"].nunique() for rows in methods.values())

    with style():
        figure = new_figure(7.5 + min(6.0, 0.16 * most), 0.6 + 2.6 * len(methods))
        panels = figure.subplots(len(methods), 2, width_ratios=[1.0, 1.0], sharey="row", squeeze=False)
        for (bars, curves), (method, rows) in zip(panels, methods.items(), strict=True):
            shades = colors(list(dict.fromkeys(rows["task"])), None)
            _bars(bars, rows, shades)
            _curves(curves, rows, shades)
            bars.set_title(f"{method}: {trace_title}, last")
            curves.set_title("by epoch")

            if neutral is not None:
                for panel in (bars, curves):
                    panel.axhline(neutral, color=GREY, linewidth=0.8, linestyle="--", zorder=0)

    return figure


def gate_plot(frame: pd.DataFrame, trace: str) -> Figure:
    """Draw the same as a plotly figure for the page."""
    methods = by_method(frame)
    titles = [title for method in methods for title in (f"{method}, last", f"{method}, by epoch")]
    figure = panel_grid(titles, across=2, over="")

    for index, rows in enumerate(methods.values()):
        last_rows = last_values(rows)
        means = last_rows.groupby("task", sort=False)["value"].mean()
        shades = colors([str(task) for task in means.index], None)
        bar_panel, curve_panel = (cell(2 * index + side, len(titles), 2) for side in (0, 1))
        names = {task: label(task) for task in means.index}

        figure.add_bar(
            x=list(names.values()),
            y=means.tolist(),
            marker={"color": [shades[str(task)] for task in means.index]},
            hovertemplate="%{x}: %{y:.4g}<extra></extra>",
            **bar_panel,
        )

        figure.add_scatter(
            x=[names[task] for task in last_rows["task"]],
            y=last_rows["value"].tolist(),
            mode="markers",
            marker={"size": 5, "color": GREY},
            customdata=last_rows["seed"].tolist(),
            hovertemplate="%{x}, seed %{customdata}: %{y:.4g}<extra></extra>",
            **bar_panel,
        )

        for task, values in _by_epoch(rows).items():
            figure.add_scatter(
                x=values.index.tolist(),
                y=numbers(values),
                mode="lines+markers" if len(values) == 1 else "lines",
                line={"color": shades[str(task)], "width": 2},
                name=names[task],
                hovertemplate="%{y:.4g}",
                **curve_panel,
            )

        figure.update_xaxes(title={"text": "epoch", "standoff": 6}, **curve_panel)
    figure.update_layout(showlegend=False)

    return figure


def _bars(panel: Axes, rows: pd.DataFrame, shades: dict[str, str]) -> None:
    last_rows = last_values(rows)
    means = last_rows.groupby("task", sort=False)["value"].mean()
    positions = {str(task): position for position, task in enumerate(means.index)}
    panel.bar(list(positions.values()), means, color=[shades[task] for task in positions], alpha=0.85)
    if last_rows["seed"].nunique() > 1:
        panel.scatter(
            [positions[task] for task in last_rows["task"]], last_rows["value"], s=9, color="#1f2328", zorder=3
        )
    long = len(positions) > 3
    names = [shortened(task) for task in positions]
    panel.set_xticks(list(positions.values()), names, rotation=40 if long else 0, ha="right" if long else "center")
    panel.tick_params(axis="x", length=0, labelsize=7 if len(positions) > MOST_LINES else 8, rotation_mode="xtick")
    panel.grid(axis="x", visible=False)


def _curves(panel: Axes, rows: pd.DataFrame, shades: dict[str, str]) -> None:
    from matplotlib.ticker import MaxNLocator

    for task, values in _by_epoch(rows).items():
        dot = "o" if len(values) == 1 else None
        panel.plot(values.index, values, color=shades[str(task)], marker=dot, linewidth=1.3)
    phase_starts = rows.groupby("phase", sort=False)["epoch"].min().sort_values()
    for first_epoch in phase_starts.iloc[1:]:
        panel.axvline(first_epoch - 0.5, color=GREY, linewidth=0.8, linestyle=":")
    panel.set_xlabel("epoch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _by_epoch(rows: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return task -> mean over seeds by epoch, with a gap between phases, which begin anew."""
    curves = {}
    for task, task_rows in rows.groupby("task", sort=False):
        parts = [part.groupby("epoch")["value"].mean() for _, part in task_rows.groupby("phase", sort=False)]
        gaps = [pd.Series([np.nan], index=[part.index.max() + 0.5]) for part in parts[:-1]]
        curves[str(task)] = pd.concat([*parts, *gaps]).sort_index()
    return curves
