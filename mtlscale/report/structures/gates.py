"""Numbers that a method learned for each task and that move over the epochs: gates, weights, shares."""

from __future__ import annotations

import numpy as np
import pandas as pd

from mtlscale.report.charts.chart import DOTTED, INK, Axis, Bars, Chart, Dots, Level, Line, Panel
from mtlscale.report.charts.colors import LineStyle, colors
from mtlscale.report.stats.traces import by_method, last_values, shortened

# Trace -> its title, and its neutral value, if any: as likely as not, or a weight like the others'.
GATE_KINDS: dict[str, tuple[str, float | None]] = {
    "gates": ("gate α", None),
    "task_weights": ("learned task weight", 1.0),
    "sharing": ("probability of sharing", 0.5),
}


def gate_chart(frame: pd.DataFrame, trace: str) -> Chart:
    """Return a row per method: bars of the last values, seeds as points, beside them the mean by epoch."""
    methods = by_method(frame)
    trace_title, neutral = GATE_KINDS[trace]
    levels = [] if neutral is None else [Level(at=neutral)]

    panels = []
    for method, rows in methods.items():
        last_rows = last_values(rows)
        means = last_rows.groupby("task", sort=False)["value"].mean()
        tasks = [str(task) for task in means.index]
        shades = colors(tasks, None)

        bars = Bars(at=tasks, length=means, colors=list(shades.values()))
        seeds = Dots(
            x=last_rows["task"], y=last_rows["value"], looks=LineStyle(INK), size=3, aside=True,
            names=[f"seed {seed}" for seed in last_rows["seed"]], hover="{x}, {name}: {y:.4g}",
        )  # fmt: skip
        several = last_rows["seed"].nunique() > 1
        names = Axis(names=tasks, ticks={task: shortened(task) for task in tasks})
        panels.append(Panel(marks=[bars, *([seeds] if several else []), *levels], title=f"{method}, last", x=names))

        curves = [
            Line(x=values.index, y=values, look=LineStyle(shades[task]), name=task)
            for task, values in _by_epoch(rows).items()
        ]
        starts = rows.groupby("phase", sort=False)["epoch"].min().sort_values().iloc[1:]
        phases = [Level(at=start - 0.5, axis="x", look=DOTTED) for start in starts]
        epochs = Axis(title="epoch", whole=True)
        panels.append(Panel(marks=[*curves, *levels, *phases], title=f"{method}, by epoch", x=epochs))

    most = max(rows["task"].nunique() for rows in methods.values())
    return Chart(
        panels=panels,
        title=trace_title[0].upper() + trace_title[1:],
        note="Last values: mean over seeds as bars, seeds as dots; and by epoch.",
        file=trace,
        columns=2,
        width=7.5 + min(6.0, 0.16 * most),
        height=0.6 + 2.6 * len(methods),
    )


def _by_epoch(rows: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """Return task -> mean over seeds by epoch, with a gap between phases, which begin anew."""
    curves = {}
    for task, task_rows in rows.groupby("task", sort=False):
        parts = [part.groupby("epoch")["value"].mean() for _, part in task_rows.groupby("phase", sort=False)]
        gaps = [pd.Series([np.nan], index=[part.index.max() + 0.5]) for part in parts[:-1]]
        curves[str(task)] = pd.concat([*parts, *gaps]).sort_index()
    return curves
