"""Several objectives at once: the methods on the Pareto front, and how much of the objectives' space runs cover."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from mtlscale.metrics import FIGURES
from mtlscale.report.charts.chart import Axis, Chart, Dots, Line, Mark, Panel
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.stats.fronts import Fronts, preference_text
from mtlscale.report.stats.pareto import FLOOR, dominated, hypervolume

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

_MOST_PANELS = 6  # pairs of tasks in the chart of rays
_OBJECTIVES = ("pgd_accuracy", "ood_auroc", "flops")  # beside the average; parameters where there are no FLOPs


@dataclass(frozen=True)
class Front:
    """The Pareto front of the methods of a table, with the hypervolumes of their runs in percent.

    `runs` has one row per finished run: `method` and the objectives. `methods` has the means of a method's runs, the
    `hypervolume` of its runs and `front`: true where no other method is at least as good in all objectives and better
    in one. `total_volume` is the hypervolume of all runs together.
    """

    runs: pd.DataFrame
    methods: pd.DataFrame
    objectives: dict[str, bool]  # column -> whether more is better
    total_volume: float


def front_of(table: Table) -> Front | None:
    """Return the front by the average, figures of the evaluation and size of the network.

    Return None without an evaluation, or with one objective. Objectives are scaled from the best run, 0, to the worst,
    1; the hypervolume counts from 1.1 on.
    """
    names = [name for name in _OBJECTIVES if name in table.runs]
    if not names or table.rows["average"].isna().all():
        return None

    names = ["average", *names, *([] if "flops" in names else ["parameters"])]
    directions = {n: False if n == "parameters" else table.higher(n) for n in names}
    runs = table.runs[table.runs["method"] != FLOOR][["method", *names]].dropna()
    directions = {name: higher for name, higher in directions.items() if runs[name].nunique() > 1}
    if len(directions) < 2:
        return None

    runs = runs[["method", *directions]]
    signs = np.array([-1.0 if higher else 1.0 for higher in directions.values()])
    values = runs[list(directions)].to_numpy(float) * signs
    low, span = values.min(0), np.ptp(values, axis=0)
    scaled, reference = (values - low) / span, np.full(len(signs), 1.1)

    methods = runs.groupby("method", sort=False)[list(directions)].mean()
    methods["front"] = ~dominated(methods.to_numpy(float) * signs)
    volume = 1.1 ** len(signs)
    methods["hypervolume"] = [
        100.0 * hypervolume(scaled[(runs["method"] == method).to_numpy()], reference) / volume
        for method in methods.index
    ]

    return Front(runs, methods, directions, 100.0 * hypervolume(scaled, reference) / volume)


def front_chart(table: Table, front: Front, styles: LineStyles) -> Chart:
    """Return a panel for each objective against the average; ringed: on the front of all objectives."""
    first, *others = front.objectives
    methods = [str(method) for method in front.methods.index]

    panels = []
    for name in others:
        runs = Dots(
            x=front.runs[name], y=front.runs[first], looks=[styles[method] for method in front.runs["method"]],
            names=list(front.runs["method"]), size=3, opacity=0.4, aside=True,
        )  # fmt: skip
        means = Dots(
            x=front.methods[name],
            y=front.methods[first],
            looks=[styles[method] for method in methods],
            names=methods,
            notes=[f", hypervolume {volume:.1f} %" for volume in front.methods["hypervolume"]],
            listed=True,
            labels=[method if on else "" for method, on in zip(methods, front.methods["front"], strict=True)],
            size=8,
            ringed=list(front.methods["front"]),
        )
        x, y = Axis(title=header(table, name)), Axis(title=header(table, first))
        panels.append(Panel(marks=[runs, means], x=x, y=y))

    return Chart(
        panels=panels,
        title="Pareto front",
        note="Means over seeds; ringed: no other method is as good in all of these and better in one. Runs cover "
        f"{front.total_volume:.1f} % of the hypervolume between the best and the worst values together.",
        file="front",
        columns=3,
        width=3.6 * min(3, len(others)) + 2.6,
        height=3.8 * -(-len(others) // 3),
        legend="right",
    )


def header(table: Table, name: str) -> str:
    """Return the text for an objective."""
    if name == "average":
        return f"{table.split} {next(iter(table.main_metrics.values()))}"
    figure = FIGURES.get(name)
    return name if figure is None else f"{figure.header}, {figure.unit}"


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
