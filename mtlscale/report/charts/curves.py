"""Charts over the epochs: losses, validation, traces, weights; and the radar chart of the tasks' last scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.report.charts.chart import DOTTED, MOST_LINES, Axis, Chart, ChartText, Level, Line, Mark, Panel
from mtlscale.report.charts.colors import GREY, LineStyle, LineStyles, colors

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

MOST_CURVES = 24  # methods with a line
MOST_TASKS = 20  # tasks with a line in a panel of weights
_GRID = LineStyle("#d5d8dd")


def curve_chart(
    panels: Mapping[str, pd.DataFrame], styles: LineStyles, title: str, note: str = "", file: str = "",
    *, log: bool = False,
) -> Chart:  # fmt: skip
    """Return one line per method in each panel, with a band for the interval over seeds.

    Args:
        panels: Title -> rows of `method`, `epoch`, `mean` and `ci`.
        styles: The looks of the methods.
        title: The chart's title.
        note: Its explanation.
        file: The name of its file.
        log: Whether the vertical axes are logarithmic; an interval may reach below zero, so that none is drawn.
    """
    methods = list(dict.fromkeys(str(method) for rows in panels.values() for method in rows["method"]))
    drawn, hidden = methods[:MOST_CURVES], len(methods) - MOST_CURVES
    across = min(3, len(panels))
    return Chart(
        panels=[_curve_panel(name, rows, drawn, styles, log=log) for name, rows in panels.items()],
        title=title,
        note=f"{note}{f' {hidden} more methods are not shown.' if hidden > 0 else ''}".strip(),
        file=file,
        columns=3,
        width=3.6 * across + 2.0 + (1.4 if across == 1 else 0.0),
        height=(3.6 if len(panels) == 1 else 3.2) * -(-len(panels) // 3),
        legend="right",
    )


def _curve_panel(name: str, rows: pd.DataFrame, methods: list[str], styles: LineStyles, *, log: bool) -> Panel:
    lines = []
    for method, of_method in rows[rows["method"].isin(methods)].groupby("method", sort=False):
        banded = not log and of_method["ci"].notna().all()
        lines.append(
            Line(
                x=of_method["epoch"],
                y=of_method["mean"],
                name=str(method),
                look=styles[str(method)],
                low=of_method["mean"] - of_method["ci"] if banded else None,
                high=of_method["mean"] + of_method["ci"] if banded else None,
            )
        )
    y = Axis(log=log and bool((rows["mean"] > 0).any()))
    return Panel(marks=lines, title=name, x=Axis(title="epoch", whole=True), y=y)


def weight_chart(weights: Mapping[str, pd.DataFrame], most: int, file: str = "") -> Chart:
    """Return a panel per method, a line per task; of many tasks those whose weights move most.

    Args:
        weights: Method -> its weights [epochs, tasks].
        most: The number of methods that have a panel.
        file: The name of the chart's file.
    """
    shown = dict(list(weights.items())[:most])
    shades = colors(list(dict.fromkeys(task for values in shown.values() for task in values.columns)), None)

    panels = []
    for method, values in shown.items():
        moving = np.sort(np.ptp(values.to_numpy(), axis=0).argsort()[::-1][:MOST_TASKS])
        marks: list[Mark] = [
            Line(x=values.index, y=values[task], name=str(task), look=LineStyle(shades[task]), hover="{y:.3f}")
            for task in values.columns[moving]
        ]
        marks.append(Level(at=1 / values.shape[1], look=DOTTED))
        panels.append(Panel(marks=marks, title=method, x=Axis(title="epoch", whole=True)))

    hidden = f" The first {len(shown)} of {len(weights)} methods whose weights move." if len(weights) > most else ""
    return Chart(
        panels=panels,
        title="Task weights",
        note=f"Mean over the steps of an epoch and over seeds; dotted: equal weights.{hidden}",
        file=file,
        columns=3,
        width=3.6 * min(3, len(panels)) + 1.8,
        height=0.8 + 2.8 * -(-len(panels) // 3),
        legend="right",
    )


def radar_chart(table: Table, styles: LineStyles, file: str = "") -> Chart:
    """Return the main metric per task as a ring of each method; smaller is better.

    Accuracies are drawn as error rates, as in AAMTRL's charts.
    """
    values, name = _errors(table)
    shown = values.dropna().iloc[:MOST_LINES]
    angles = np.linspace(0, 2 * np.pi, len(table.tasks), endpoint=False)
    circle = np.linspace(0, 2 * np.pi, 181)
    edge = float(shown.to_numpy().max(initial=0.0)) or 1.0

    marks: list[Mark] = []
    steps = (factor * 10.0**power for power in range(-12, 12) for factor in (1, 2, 5))
    step = next(step for step in steps if edge < 5 * step)
    for tick in step * np.arange(1, np.floor(edge / step) + 1):
        marks.append(Line(x=tick * np.sin(circle), y=tick * np.cos(circle), look=_GRID, width=0.8, hover=""))
        marks.append(ChartText(x=0.0, y=tick, text=f"{tick:g}", color=GREY, size=7))
    for angle, task in zip(angles, table.tasks, strict=True):
        x, y = float(np.sin(angle)), float(np.cos(angle))
        marks.append(Line(x=[0.0, edge * x], y=[0.0, edge * y], look=_GRID, width=0.8, hover=""))
        side = "center" if abs(x) < 0.01 else "left" if x > 0 else "right"
        marks.append(ChartText(x=1.06 * edge * x, y=1.06 * edge * y, text=task, anchor=side))  # type: ignore[arg-type]

    for method, row in shown.iterrows():
        ring, closed = np.append(row, row.iloc[:1]), np.append(angles, angles[:1])
        marks.append(Line(x=ring * np.sin(closed), y=ring * np.cos(closed), name=str(method), look=styles[str(method)]))

    hidden = Axis(visible=False, grid=False, limits=(-1.15 * edge, 1.15 * edge))
    return Chart(
        panels=[Panel(marks=marks, x=hidden, y=hidden, equal=True)],
        title=f"{table.dataset}: {table.split} {name}",
        file=file,
        width=6.6 + 0.16 * max(map(len, table.tasks)),
        height=5.4,
        legend="right",
    )


def _errors(table: Table) -> tuple[pd.DataFrame, str]:
    """Return [methods, tasks] values where smaller is better, and their name."""
    values = table.rows[[table.main_column(task) for task in table.tasks]].set_axis(list(table.tasks), axis=1)
    metrics = set(table.main_metrics.values())
    if metrics == {"accuracy"}:
        return 100.0 - values, "error in %"
    return values, ", ".join(sorted(metrics))
