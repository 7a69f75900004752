"""Rows with several solutions: what their networks reach in each task, with a line along each front."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from mtlscale.report.charts.chart import Axis, Chart, Dots, Line, Mark, Panel
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.stats.fronts import Fronts, preference_text

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

_MOST_PANELS = 6


def rays_chart(table: Table, front: Fronts, styles: LineStyles) -> Chart:
    """Return a panel for each pair of tasks, with the networks of each row that has several."""
    panels = []
    for first, second in list(combinations(front.objectives, 2))[:_MOST_PANELS]:
        marks: list[Mark] = []
        for method, points in front.points.groupby("method", sort=False):
            style = styles[str(method)]
            means = points.groupby("ray")[[first, second]].mean()
            found = points.groupby("ray")["found"].any()
            names = [
                f"{method}, {preference_text(preference)}" for preference in points.groupby("ray")["preference"].first()
            ]
            marks.append(
                Dots(
                    x=points[first],
                    y=points[second],
                    looks=style,
                    names=[str(method)] * len(points),
                    size=3,
                    opacity=0.4,
                    aside=True,
                )
            )
            marks.append(Line(x=means[first], y=means[second], look=style, width=1.0, hover=""))
            marks.append(
                Dots(
                    x=means[first],
                    y=means[second],
                    looks=style,
                    legend=str(method),
                    names=names,
                    size=7,
                    ringed=list(found),
                )
            )
        x, y = (Axis(title=f"{task} {front.objectives[task]}") for task in (first, second))
        panels.append(Panel(marks=marks, x=x, y=y))

    return Chart(
        panels=panels,
        title="Fronts",
        note=f"Networks of each ray on {table.split}, means over seeds joined along the grid; small: single runs; "
        "ringed: no other network of the row is better in all tasks, for some seed.",
        file="rays",
        columns=3,
        width=3.8 * min(3, len(panels)) + 2.2,
        height=3.8 * -(-len(panels) // 3),
        legend="right",
    )
