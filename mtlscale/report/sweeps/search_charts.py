"""Charts of one method's search, with the chosen trial marked: front, slices, importance, coordinates, history."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mtlscale.config import Dimension
from mtlscale.metrics import FIGURES
from mtlscale.metrics.objectives import more_is_better, objective_of
from mtlscale.records import RunRecord
from mtlscale.report.charts.chart import Axis, Bars, Chart, ChartText, Dots, Line, Mark, Panel, ring
from mtlscale.report.charts.colors import GREY, LineStyle
from mtlscale.report.stats.pareto import dominated
from mtlscale.report.sweeps.search_study import Searched, plain, settings_text, short

MOST_COLUMNS = 4  # settings beside each other
TRIAL, WINNER = LineStyle("#4390ee"), LineStyle("#d76f04")


def search_charts(searched: Searched) -> Iterator[Chart]:
    """Yield the charts of a method's search; nothing where no trial finished or nothing was searched."""
    if searched.winner is None:
        return

    chosen = searched.trials.index(searched.winner)
    if searched.objectives:
        yield trial_front_chart(searched.trials, searched.objectives, chosen)
    if not searched.space:
        return

    panels = [
        slice_panel([record.trial.get(path) for record in searched.trials], searched.scores, dimension, short(path))
        for path, dimension in searched.space.items()
    ]
    for start in range(0, len(panels), MOST_COLUMNS):
        part = panels[start : start + MOST_COLUMNS]
        note = "The score against each setting alone; ringed is the chosen trial."
        yield Chart(panels=part, title="Slices", note=note, columns=MOST_COLUMNS, height=3.8)

    if len(searched.importance) > 1:
        names = list(searched.importance)[::-1]
        bars = Bars(at=names, length=[searched.importance[name] for name in names], colors=TRIAL.color, lying=True)
        yield Chart(
            panels=[Panel(marks=[bars], y=Axis(names=names))],
            title="Importance",
            note="Share of each setting in the variance of the score.",
            height=1.4 + 0.44 * len(names),
        )
    if len(panels) > 1:
        yield _parallel_coordinates(searched, chosen)
    yield _history(searched, chosen)


def slice_panel(
    settings: Sequence[Any], scores: Sequence[float], dimension: Dimension, name: str, look: LineStyle = TRIAL
) -> Panel:
    """Return the scores of trials over one setting, the best ringed; failed trials have no score."""
    trials = [index for index, score in enumerate(scores) if not math.isnan(score)]
    x, y = [_position(dimension, settings[index]) for index in trials], [scores[index] for index in trials]
    best = int(np.argmax(y))

    marks = [
        ring([x[best]], [y[best]], WINNER),
        Dots(x=x, y=y, looks=LineStyle(look.color), names=[f"trial {index}" for index in trials], size=5, opacity=0.7),
    ]
    if dimension.choices is not None:
        ticks = {index: str(choice) for index, choice in enumerate(dimension.choices)}
        return Panel(marks=marks, title=name, x=Axis(ticks=ticks))
    return Panel(marks=marks, title=name, x=Axis(log=dimension.scale == "log"))


def _parallel_coordinates(searched: Searched, chosen: int) -> Chart:
    """Return a line for each trial through its score and its settings, each from the least to the greatest."""
    finished = [index for index, score in enumerate(searched.scores) if not math.isnan(score)]
    scores = [searched.scores[index] for index in finished]
    low, span = min(scores), (max(scores) - min(scores)) or 1.0

    marks: list[Mark] = []
    for index in sorted(finished, key=lambda index: index == chosen):
        record, is_chosen = searched.trials[index], index == chosen
        shares = [_share(dimension, record.trial[path]) for path, dimension in searched.space.items()]
        text = f"trial {index}: {searched.scores[index]:.4g}, {settings_text(record.trial)}"
        marks.append(
            Line(
                x=range(1 + len(shares)), y=[(searched.scores[index] - low) / span, *shares],
                look=WINNER if is_chosen else TRIAL, width=2.5 if is_chosen else 0.9, hover=text,
            )
        )  # fmt: skip

    ends = [(0, share, f"{value:.4g}") for share, value in ((0.0, low), (1.0, max(scores)))]
    for number, dimension in enumerate(searched.space.values(), 1):
        values = (dimension.low, dimension.high) if dimension.choices is None else dimension.choices
        ends += [(number, _share(dimension, value), plain(value)) for value in values]
    marks += [ChartText(x=x, y=y, text=f" {text}", anchor="left", size=7, boxed=True) for x, y, text in ends]

    names = ["score", *(short(path) for path in searched.space)]
    x_axis = Axis(ticks=dict(enumerate(names)), limits=(-0.1, len(names) - 0.7))
    return Chart(
        panels=[Panel(marks=marks, x=x_axis, y=Axis(visible=False, grid=False, limits=(-0.08, 1.08)))],
        title="Parallel coordinates",
        note="A line for each trial through its settings; thick is the chosen trial.",
        height=4.4,
    )


def _history(searched: Searched, chosen: int) -> Chart:
    best = np.fmax.accumulate(searched.scores)
    trials = list(range(len(best)))
    names = [f"trial {trial}" for trial in trials]
    marks: list[Mark] = [
        Line(x=trials, y=best, look=WINNER, step=True, hover="best so far {y:.4g}"),
        Dots(x=trials, y=searched.scores, looks=TRIAL, names=names, size=6, hover="{name}: {y:.4g}"),
        ring([chosen], [searched.scores[chosen]], WINNER),
    ]
    return Chart(
        panels=[Panel(marks=marks, x=Axis(title="trial", whole=True), y=Axis(title="score"))],
        title="History",
        note="The score of one trial after the other, and the best so far.",
    )


def _position(dimension: Dimension, value: Any) -> float:
    """Return where a setting stands on its axis: a choice at its number."""
    return float(value) if dimension.choices is None else float(dimension.choices.index(value))


def _share(dimension: Dimension, value: Any) -> float:
    """Return a setting's share of the way from the least to the greatest."""
    position, low, high = _position(dimension, value), float(dimension.low), float(dimension.high)
    if dimension.choices is not None:
        low, high = 0.0, float(len(dimension.choices) - 1)
    elif dimension.scale == "log":
        position, low, high = math.log(position), math.log(low), math.log(high)
    return (position - low) / (high - low) if high > low else 0.5


def trial_front(trials: Sequence[RunRecord], objectives: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Return the indices of the trials that have every objective, and for each whether it is on the Pareto front.

    A trial is on the front where no other is as good in all objectives and better in one.
    """
    values = [[objective_of(record, name) for name in objectives] for record in trials]
    indices = [trial_index for trial_index, row in enumerate(values) if all(map(math.isfinite, row))]
    signs = np.array([-1.0 if more_is_better(name) else 1.0 for name in objectives])
    points = np.array([values[trial_index] for trial_index in indices]).reshape(-1, len(objectives))
    return indices, ~dominated(points * signs)


def trial_front_chart(trials: Sequence[RunRecord], objectives: Sequence[str], winner: int) -> Chart:
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
            looks=[LineStyle(TRIAL.color if on_front else GREY) for on_front in front],
            names=[f"trial {index}" for index in indices],
            hollow=[not on_front for on_front in front],
        )
        at = [indices.index(winner)] if winner in indices else []
        rings = ring([x[index] for index in at], [y[index] for index in at], WINNER)
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
