"""What a method learned of each task, a number that moves over the epochs: gates, weights, shares."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.canvas import MOST_LINES, new_figure, style
from mtlscale.report.colors import GREY, colors
from mtlscale.report.plotly_canvas import cell, label, numbers, panel_grid
from mtlscale.report.traces import by_method, last_values, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

# Trace -> what it is, and the value that says nothing: as likely as not, a weight like the others'.
KNOWN: dict[str, tuple[str, float | None]] = {
    "gates": ("gate α", None),
    "task_weights": ("learned task weight", 1.0),
    "sharing": ("probability of sharing", 0.5),
}


def gate_figure(frame: pd.DataFrame, trace: str) -> Drawing:
    """A row per method: bars of the last values, seeds as points, and beside them the mean over seeds by epoch."""
    methods = by_method(frame)
    what, neutral = KNOWN[trace]
    most = max(rows["task"].nunique() for rows in methods.values())
    with style():
        figure = new_figure(7.5 + min(6.0, 0.16 * most), 0.6 + 2.6 * len(methods))
        panels = figure.subplots(len(methods), 2, width_ratios=[1.0, 1.0], sharey="row", squeeze=False)
        for (bars, curves), (method, rows) in zip(panels, methods.items(), strict=True):
            shades = colors(list(dict.fromkeys(rows["task"])), None)
            _bars(bars, rows, shades)
            _curves(curves, rows, shades)
            bars.set_title(f"{method}: {what}, last")
            curves.set_title("by epoch")
            if neutral is not None:
                for panel in (bars, curves):
                    panel.axhline(neutral, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
    return figure


def gate_plot(frame: pd.DataFrame, trace: str) -> Figure:
    """The same for the page."""
    methods = by_method(frame)
    titles = [title for method in methods for title in (f"{method}, last", f"{method}, by epoch")]
    figure = panel_grid(titles, across=2, over="")
    for place, rows in enumerate(methods.values()):
        last = last_values(rows)
        means = last.groupby("task", sort=False)["value"].mean()
        shades = colors([str(task) for task in means.index], None)
        left, right = (cell(2 * place + side, len(titles), 2) for side in (0, 1))
        names = {task: label(task) for task in means.index}
        figure.add_bar(
            x=list(names.values()),
            y=means.tolist(),
            marker={"color": [shades[str(task)] for task in means.index]},
            hovertemplate="%{x}: %{y:.4g}<extra></extra>",
            **left,
        )
        figure.add_scatter(
            x=[names[task] for task in last["task"]],
            y=last["value"].tolist(),
            mode="markers",
            marker={"size": 5, "color": GREY},
            customdata=last["seed"].tolist(),
            hovertemplate="%{x}, seed %{customdata}: %{y:.4g}<extra></extra>",
            **left,
        )
        for task, values in _by_epoch(rows).items():
            figure.add_scatter(
                x=values.index.tolist(),
                y=numbers(values),
                mode="lines+markers" if len(values) == 1 else "lines",
                line={"color": shades[str(task)], "width": 2},
                name=names[task],
                hovertemplate="%{y:.4g}",
                **right,
            )
        figure.update_xaxes(title={"text": "epoch", "standoff": 6}, **right)
    figure.update_layout(showlegend=False)
    return figure


def _bars(panel: Axes, rows: pd.DataFrame, shades: dict[str, str]) -> None:
    last = last_values(rows)
    means = last.groupby("task", sort=False)["value"].mean()
    places = {str(task): place for place, task in enumerate(means.index)}
    panel.bar(list(places.values()), means, color=[shades[task] for task in places], alpha=0.85)
    if last["seed"].nunique() > 1:
        panel.scatter([places[task] for task in last["task"]], last["value"], s=9, color="#1f2328", zorder=3)
    long = len(places) > 3
    names = [shortened(task) for task in places]
    panel.set_xticks(list(places.values()), names, rotation=40 if long else 0, ha="right" if long else "center")
    panel.tick_params(axis="x", length=0, labelsize=7 if len(places) > MOST_LINES else 8, rotation_mode="xtick")
    panel.grid(axis="x", visible=False)


def _curves(panel: Axes, rows: pd.DataFrame, shades: dict[str, str]) -> None:
    from matplotlib.ticker import MaxNLocator

    for task, values in _by_epoch(rows).items():
        dot = "o" if len(values) == 1 else None
        panel.plot(values.index, values, color=shades[str(task)], marker=dot, linewidth=1.3)
    begins = rows.groupby("phase", sort=False)["epoch"].min().sort_values()
    for first in begins.iloc[1:]:
        panel.axvline(first - 0.5, color=GREY, linewidth=0.8, linestyle=":")
    panel.set_xlabel("epoch")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))


def _by_epoch(rows: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Task -> mean over seeds by epoch, with a gap between phases, which begin anew."""
    found = {}
    for task, of in rows.groupby("task", sort=False):
        parts = [part.groupby("epoch")["value"].mean() for _, part in of.groupby("phase", sort=False)]
        gaps = [pd.Series([np.nan], index=[part.index.max() + 0.5]) for part in parts[:-1]]
        found[str(task)] = pd.concat([*parts, *gaps]).sort_index()
    return found
