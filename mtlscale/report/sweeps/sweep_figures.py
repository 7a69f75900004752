"""Charts of all methods of a search together: budget curves, and slices for a file.

Optuna draws the charts of a single method.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.config import Dimension
from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyles, line_styles
from mtlscale.report.charts.plotly_canvas import label, new_plot, with_legend

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

MOST_ROWS = 11  # methods in a chart, which would grow too high


def budget_curves(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the best score of the first 1, 2, … trials, [trials spent, methods]; NaN beyond a method's last."""
    curves = {
        str(method): group.sort_values("trial")["score"].cummax().ffill().reset_index(drop=True)
        for method, group in trials.groupby("method", sort=False)
    }
    table = pd.DataFrame(curves)
    table.index = pd.RangeIndex(1, len(table) + 1, name="trials")
    return table


def budget_figure(trials: pd.DataFrame, styles: LineStyles) -> Figure:
    """Draw the budget curves for the page."""
    curves = budget_curves(trials)
    figure = new_plot(360)

    for method in curves.columns:
        look = styles[method]
        figure.add_scatter(
            x=curves.index.tolist(),
            y=[None if np.isnan(value) else float(value) for value in curves[method]],
            name=label(method),
            mode="lines+markers",
            line={"color": look.color, "width": 2, "shape": "hv", "dash": look.dash},
            marker={"symbol": look.symbol, "size": 6},
            hovertemplate="%{y:.4g}",
            showlegend=True,
        )

    figure.update_xaxes(title={"text": "trials spent", "standoff": 6}, dtick=1 if len(curves) <= 12 else None)
    figure.update_yaxes(title="best validation score")
    return with_legend(figure)


def drawings(
    trials: Mapping[str, pd.DataFrame], space: Mapping[str, Mapping[str, Dimension]], names: Mapping[str, str]
) -> Iterator[Drawing]:
    """Yield charts for a README or a paper: budget curves of all methods, then a row of slices for each.

    Many methods take several charts.

    Args:
        trials: Method -> its trials, one row each.
        space: Method -> path of a setting -> its dimension.
        names: Path of a setting -> its name.
    """
    widest = max(1, *(len(dimensions) for dimensions in space.values()))
    shown = line_styles(list(trials))

    for start in range(0, len(trials), MOST_ROWS):
        part = dict(list(trials.items())[start : start + MOST_ROWS])

        with style():
            figure = new_figure(2.6 * max(3, widest), 3.0 + 1.9 * len(part))
            grid = figure.add_gridspec(len(part) + 1, widest, height_ratios=[1.5, *[1.0] * len(part)])

            _budgets(figure.add_subplot(grid[0, :]), trials, shown)

            for row, (method, rows) in enumerate(part.items(), start=1):
                for column, (path, dimension) in enumerate(space[method].items()):
                    panel = figure.add_subplot(grid[row, column])
                    _slice(panel, rows.dropna(subset="score"), path, dimension, shown[method].color)
                    panel.set_title(names[path], fontsize=8)
                    panel.tick_params(labelsize=6)
                    if column == 0:
                        panel.set_ylabel(method, fontsize=8)

        yield figure


def _budgets(panel: Axes, trials: Mapping[str, pd.DataFrame], styles: LineStyles) -> None:
    curves = budget_curves(pd.concat(trials.values()))
    for method in curves.columns:
        look = styles[method]
        panel.step(curves.index, curves[method], where="post", label=method, color=look.color, linestyle=look.line)
    panel.set_xlabel("trials spent")
    panel.set_ylabel("best validation score")
    lowest, highest = np.nanquantile(curves.to_numpy(), [0.1, 1.0])
    if highest > lowest:
        panel.set_ylim(lowest - 0.1 * (highest - lowest), highest + 0.1 * (highest - lowest))
    panel.legend(fontsize=7, ncols=2 + len(trials) // 12, frameon=False)


def _slice(panel: Axes, done: pd.DataFrame, path: str, dimension: Dimension, color: str) -> None:
    if dimension.choices is not None:
        values = [dimension.choices.index(value) for value in done[path]]
        panel.set_xticks(range(len(dimension.choices)), [str(choice) for choice in dimension.choices])
    else:
        values = done[path].tolist()

    panel.scatter(values, done["score"].tolist(), s=9, alpha=0.7, color=color)
    if dimension.choices is None:
        panel.set_xscale(dimension.scale)
        panel.xaxis.set_major_formatter("{x:g}")

    best = int(np.argmax(done["score"].to_numpy()))
    panel.scatter([values[best]], [done["score"].max()], s=28, facecolors="none", edgecolors=GREY)
