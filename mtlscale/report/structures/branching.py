"""The probabilities of the branch points over a search's epochs, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.plotly_canvas import cell, label, numbers, panel_grid, with_legend
from mtlscale.report.stats.traces import shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

MOST_TASKS = 40  # tasks that get a panel
_COLUMNS_BY_COUNT = ((3, 3), (9, 3), (20, 5), (MOST_TASKS, 8))  # (tasks at most, panels in a row)


def branch_curves(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Average the probabilities over seeds, from one method's rows of the trace.

    Returns:
        Task -> probabilities [epochs, branch points].
    """
    return {
        str(task): rows.pivot_table(index="epoch", columns="place", values="value", aggfunc="mean")
        for task, rows in frame.groupby("task", sort=False)
    }


def branching_figure(frame: pd.DataFrame, title: str) -> Drawing:
    """Draw one panel per task, one line per branch point: early ones dark, late ones light."""
    from matplotlib.ticker import MaxNLocator

    curves = branch_curves(frame)
    shown, hidden = list(curves)[:MOST_TASKS], len(curves) - MOST_TASKS
    across = _column_count(len(shown))
    down = -(-len(shown) // across)
    shades = point_colors(max(int(values.columns.max()) for values in curves.values()))

    with style():
        figure = new_figure(1.6 + (2.4 if across <= 5 else 1.75) * across, 0.9 + 1.5 * down)
        panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flatten()
        for panel in panels[len(shown) :]:
            panel.remove()

        for panel, task in zip(panels, shown, strict=False):
            for point, values in curves[task].items():
                dot = "o" if len(values) == 1 else None
                panel.plot(values.index, values, color=shades[int(str(point)) - 1], label=f"{point}", marker=dot)
            panel.set_title(
                f"{shortened(task, 18 if across <= 5 else 14)} → {_likeliest_branch(curves[task])}", fontsize=8.5
            )
            panel.set_ylim(-0.02, 1.02)
            panel.tick_params(labelbottom=True, labelsize=7)
            panel.xaxis.set_major_locator(MaxNLocator(4, integer=True))

        longest = max(curves.values(), key=lambda values: values.shape[1])
        lines = panels[shown.index(next(task for task in shown if curves[task].shape[1] == longest.shape[1]))]
        handles, labels = lines.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper", frameon=False, title="branch point")

        remainder = f" · {hidden} more tasks" if hidden > 0 else ""
        figure.suptitle(f"{title}: probability of each branch point{remainder}", x=0.01, ha="left", fontweight="bold")
        figure.supxlabel("epoch", fontsize=9)

    return figure


def branching_plot(frame: pd.DataFrame) -> Figure:
    """Draw the same as a plotly figure for the page."""
    curves = dict(list(branch_curves(frame).items())[:MOST_TASKS])
    across = min(5, _column_count(len(curves)))
    titles = [f"{shortened(task, 20)} → {_likeliest_branch(values)}" for task, values in curves.items()]
    figure = panel_grid(titles, across=across, height=190)
    shades = point_colors(max(int(values.columns.max()) for values in curves.values()))

    points_in_legend: set[int] = set()
    for index, values in enumerate(curves.values()):
        for name in values.columns:
            point = int(name)
            figure.add_scatter(
                x=values.index.tolist(),
                y=numbers(values[name]),
                mode="lines+markers" if len(values) == 1 else "lines",
                line={"color": shades[point - 1], "width": 2},
                name=label(f"branch point {point}"),
                legendgroup=point,
                showlegend=point not in points_in_legend,
                hovertemplate="%{y:.3f}",
                **cell(index, len(curves), across),
            )
            points_in_legend.add(point)

    figure.update_yaxes(range=[-0.02, 1.02])
    return with_legend(figure)


def point_colors(count: int) -> list[str]:
    """Return the colours of the branch points, input side first; none so light that it is lost on white."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["plasma"](0.88 * position / max(1, count - 1))) for position in range(count)]


def _likeliest_branch(values: pd.DataFrame) -> int:
    """Return the likeliest branch point after the last epoch."""
    return int(str(values.iloc[-1].idxmax()))


def _column_count(count: int) -> int:
    wide: Sequence[int] = [across for most, across in _COLUMNS_BY_COUNT if count <= most]
    return max(1, min(count, wide[0] if wide else 8))
