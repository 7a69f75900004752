"""The probabilities of the branch points over a search's epochs, task by task."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.charts.chart import Axis, Chart, Line, Panel
from mtlscale.report.charts.colors import PLASMA, LineStyle, ramp
from mtlscale.report.stats.traces import shortened

MOST_TASKS = 40  # tasks that get a panel


def branch_curves(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Average the probabilities over seeds, from one method's rows of the trace.

    Returns:
        Task -> probabilities [epochs, branch points].
    """
    return {
        str(task): rows.pivot_table(index="epoch", columns="place", values="value", aggfunc="mean")
        for task, rows in frame.groupby("task", sort=False)
    }


def branching_chart(frame: pd.DataFrame, title: str, file: str = "") -> Chart:
    """Return one panel per task, with one line per branch point: early ones dark, late ones light."""
    curves = branch_curves(frame)
    shown, hidden = dict(list(curves.items())[:MOST_TASKS]), len(curves) - MOST_TASKS
    across = min(len(shown), 3 if len(shown) <= 9 else 5)
    shades = point_colors(max(int(values.columns.max()) for values in curves.values()))

    panels = []
    for task, values in shown.items():
        lines = [
            Line(
                x=values.index,
                y=values[name],
                name=f"branch point {name}",
                look=LineStyle(shades[int(name) - 1]),
                hover="{y:.3f}",
            )
            for name in values.columns
        ]
        task_title = f"{shortened(task, 18)} → {values.iloc[-1].idxmax()}"
        x, y = Axis(title="epoch", whole=True), Axis(limits=(-0.02, 1.02))
        panels.append(Panel(marks=lines, title=task_title, x=x, y=y))

    remainder = f" {hidden} more tasks are not shown." if hidden > 0 else ""
    return Chart(
        panels=panels,
        title=f"Branch points, {title}",
        note="By task, mean over seeds; behind the arrow the likeliest after the last epoch." + remainder,
        file=file,
        columns=across,
        width=1.6 + 2.4 * across,
        height=0.9 + 2.2 * -(-len(shown) // across),
        legend="right",
    )


def point_colors(count: int) -> list[str]:
    """Return the colours of the branch points, input side first; none so light that it is lost on white."""
    red_green_blue = ramp(PLASMA, 0.88 * np.arange(count) / max(1, count - 1))
    return ["#" + bytes(color).hex() for color in red_green_blue]
