"""Trials of a search for several objectives, with the Pareto front among them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.metrics import FIGURES
from mtlscale.metrics.objectives import more_is_better, objective_of
from mtlscale.records import RunRecord
from mtlscale.report.charts.colors import GREY
from mtlscale.report.charts.front import dominated
from mtlscale.report.charts.plotly_canvas import cell, label, panel_grid

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def trial_front(trials: Sequence[RunRecord], objectives: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Return the indices of the trials that have every objective, and for each whether it is on the Pareto front.

    A trial is on the front where no other is as good in all objectives and better in one.
    """
    values = [[objective_of(record, name) for name in objectives] for record in trials]
    indices = [trial_index for trial_index, row in enumerate(values) if all(map(math.isfinite, row))]
    signs = np.array([-1.0 if more_is_better(name) else 1.0 for name in objectives])
    points = np.array([values[trial_index] for trial_index in indices]).reshape(-1, len(objectives))
    return indices, ~dominated(points * signs)


def trial_front_plot(trials: Sequence[RunRecord], objectives: Sequence[str], winner: int, color: str) -> Figure:
    """Draw a panel for each objective against the first; filled trials are on the front, the chosen one is ringed."""
    indices, front = trial_front(trials, objectives)
    first, *other_objectives = objectives
    figure = panel_grid([f"{_axis_label(first)} against {_axis_label(name)}" for name in other_objectives], over="")

    y_values = [objective_of(trials[trial_index], first) for trial_index in indices]

    for index, name in enumerate(other_objectives):
        panel_cell, x_values = (
            cell(index, len(other_objectives)),
            [objective_of(trials[trial_index], name) for trial_index in indices],
        )
        figure.add_scatter(
            x=x_values,
            y=y_values,
            mode="markers",
            customdata=indices,
            marker={
                "size": 9,
                "color": ["#1b6cc7" if on_front else "rgba(0,0,0,0)" for on_front in front],
                "line": {"width": 1.5, "color": ["#1b6cc7" if on_front else GREY for on_front in front]},
            },
            hovertemplate="trial %{customdata}: %{y:.4g} at %{x:.4g}<extra></extra>",
            showlegend=False,
            **panel_cell,
        )

        ring = {"size": 17, "symbol": "circle-open", "color": color, "line": {"width": 3}}
        chosen_at = indices.index(winner) if winner in indices else None
        if chosen_at is not None:
            figure.add_scatter(
                x=[x_values[chosen_at]],
                y=[y_values[chosen_at]],
                mode="markers",
                marker=ring,
                name="chosen",
                hoverinfo="skip",
                showlegend=False,
                **panel_cell,
            )

    return figure


def _axis_label(name: str) -> str:
    return label(FIGURES[name].header if name in FIGURES else name)
