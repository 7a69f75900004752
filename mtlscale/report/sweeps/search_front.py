"""Trials of a search for several objectives, with the Pareto front among them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mtlscale.metrics import FIGURES
from mtlscale.metrics.objectives import more_is_better, objective_of
from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import Axis, Chart, Dots, Panel, ring
from mtlscale.report.charts.colors import GREY, LineStyle
from mtlscale.report.charts.front import dominated


def trial_front(trials: Sequence[RunRecord], objectives: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Return the indices of the trials that have every objective, and for each whether it is on the Pareto front.

    A trial is on the front where no other is as good in all objectives and better in one.
    """
    values = [[objective_of(record, name) for name in objectives] for record in trials]
    indices = [trial_index for trial_index, row in enumerate(values) if all(map(math.isfinite, row))]
    signs = np.array([-1.0 if more_is_better(name) else 1.0 for name in objectives])
    points = np.array([values[trial_index] for trial_index in indices]).reshape(-1, len(objectives))
    return indices, ~dominated(points * signs)


def trial_front_chart(trials: Sequence[RunRecord], objectives: Sequence[str], winner: int, look: LineStyle) -> Chart:
    """Return a panel for each objective against the first; filled trials are on the front, the chosen one is ringed."""
    indices, front = trial_front(trials, objectives)
    first, *other_objectives = objectives
    y = [objective_of(trials[index], first) for index in indices]

    panels = []
    for name in other_objectives:
        x = [objective_of(trials[index], name) for index in indices]
        dots = Dots(
            x=x,
            y=y,
            looks=[LineStyle("#1b6cc7" if on_front else GREY) for on_front in front],
            names=[f"trial {index}" for index in indices],
            hollow=[not on_front for on_front in front],
        )
        at = [indices.index(winner)] if winner in indices else []
        rings = ring([x[index] for index in at], [y[index] for index in at], look)
        panels.append(Panel(marks=[rings, dots], x=Axis(title=_axis_name(name)), y=Axis(title=_axis_name(first))))

    return Chart(
        panels=panels,
        title="Pareto front",
        note="Trials by all that was searched for, on validation; filled: no other is as good in all of it and better "
        "in some; ringed is the chosen trial.",
        columns=3,
        height=3.6 * -(-len(panels) // 3),
    )


def _axis_name(name: str) -> str:
    return FIGURES[name].header if name in FIGURES else name
