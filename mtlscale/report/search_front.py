"""The trials of a search for several objectives, and which of them no other beats in all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.metrics import FIGURES
from mtlscale.metrics.objectives import more_is_better, objective_of
from mtlscale.records import RunRecord
from mtlscale.report.colors import GREY
from mtlscale.report.front import dominated
from mtlscale.report.plotly_canvas import cell, label, panel_grid

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def trial_front(trials: Sequence[RunRecord], objectives: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Places of the trials that have a value of every objective, and of each whether no other is as good in all and
    better in one."""
    values = [[objective_of(record, name) for name in objectives] for record in trials]
    places = [place for place, row in enumerate(values) if all(map(math.isfinite, row))]
    signs = np.array([-1.0 if more_is_better(name) else 1.0 for name in objectives])
    points = np.array([values[place] for place in places]).reshape(-1, len(objectives))
    return places, ~dominated(points * signs)


def trial_front_plot(trials: Sequence[RunRecord], objectives: Sequence[str], chosen: int, color: str) -> Figure:
    """A panel for each objective against the first; filled: on the front of all, ringed: chosen."""
    places, front = trial_front(trials, objectives)
    first, *others = objectives
    figure = panel_grid([f"{_words(first)} against {_words(name)}" for name in others], over="")
    high = [objective_of(trials[place], first) for place in places]
    for index, name in enumerate(others):
        where, across = cell(index, len(others)), [objective_of(trials[place], name) for place in places]
        figure.add_scatter(
            x=across,
            y=high,
            mode="markers",
            customdata=places,
            marker={
                "size": 9,
                "color": ["#1b6cc7" if on else "rgba(0,0,0,0)" for on in front],
                "line": {"width": 1.5, "color": ["#1b6cc7" if on else GREY for on in front]},
            },
            hovertemplate="trial %{customdata}: %{y:.4g} at %{x:.4g}<extra></extra>",
            showlegend=False,
            **where,
        )
        ring = {"size": 17, "symbol": "circle-open", "color": color, "line": {"width": 3}}
        at = places.index(chosen) if chosen in places else None
        if at is not None:
            figure.add_scatter(
                x=[across[at]], y=[high[at]], mode="markers", marker=ring, name="chosen", hoverinfo="skip",
                showlegend=False, **where,
            )  # fmt: skip
    return figure


def _words(name: str) -> str:
    return label(FIGURES[name].header if name in FIGURES else name)
