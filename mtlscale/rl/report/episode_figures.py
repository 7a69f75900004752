"""Pictures of an episode of each task: what a camera saw, or the hand's trajectory where nothing can be rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mtlscale.report.charts.chart import Axis, Chart, ChartText, Image, Level, Line, Mark, Panel
from mtlscale.report.charts.colors import COLORS, LineStyle

_GOOD, _BAD = "#2f8f4e", "#c8443c"
_SIDE = 1.5  # width and height of a frame in inches
_COLUMNS = 3  # panels of trajectories in a row


@dataclass(frozen=True, kw_only=True)
class EpisodeOutcome:
    """Outcome of an episode of a task: success or not, and after how many steps it ended."""

    task: str
    success: bool
    steps: int

    @property
    def describe(self) -> str:
        count = f"{self.steps} step{'' if self.steps == 1 else 's'}"
        return f"success after {count}" if self.success else f"no success in {count}"

    @property
    def color(self) -> str:
        return _GOOD if self.success else _BAD


@dataclass(frozen=True, kw_only=True)
class Strip(EpisodeOutcome):
    """Strip of an episode's frames [n, H, W, 3], with the step that each frame shows."""

    frames: np.ndarray
    shown: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Trajectory(EpisodeOutcome):
    """Positions in metres: the hand's before the first step and after each [steps + 1, 3], and the goal's [3]."""

    hand: np.ndarray
    goal: np.ndarray


def strip_chart(strips: Sequence[Strip], title: str = "") -> Chart:
    """Return a row per episode: its task and outcome, then its frames."""
    columns = max(len(strip.shown) for strip in strips)
    hidden = Axis(visible=False, grid=False)

    panels = []
    for strip in strips:
        for index, (frame, step) in enumerate(zip(strip.frames, strip.shown, strict=True)):
            height, width = frame.shape[:2]
            marks: list[Mark] = [Image(pixels=frame)]
            marks.append(ChartText(x=0.04 * width, y=0.93 * height, text=f"step {step}", anchor="left", boxed=True))
            if not index:
                label = f"{strip.task}\n{strip.describe}"
                marks.append(ChartText(x="left", y=height / 2, text=label, color=strip.color, anchor="right", size=9))
            panels.append(Panel(marks=marks, x=hidden, y=hidden, equal=True))
        panels += [Panel(marks=[])] * (columns - len(strip.shown))

    width = 1.5 + columns * _SIDE
    return Chart(panels=panels, title=title, columns=columns, width=width, height=len(strips) * _SIDE + 0.4)


def trajectory_chart(trajectories: Sequence[Trajectory], title: str = "") -> Chart:
    """Return a panel per episode.

    It has each coordinate of the hand by step, and that of the goal dashed in the same colour.
    """
    panels = []
    for trajectory in trajectories:
        marks: list[Mark] = []
        for dimension, axis in enumerate("xyz"):
            color, hand = COLORS[dimension], trajectory.hand[:, dimension]
            marks.append(Line(x=range(len(hand)), y=hand, name=f"hand, {axis}", look=LineStyle(color)))
            goal = float(trajectory.goal[dimension])
            marks.append(Level(at=goal, name=f"goal, {axis}", look=LineStyle(color, dash="dash")))
        panels.append(
            Panel(
                marks=marks,
                title=f"{trajectory.task}: {trajectory.describe}",
                title_color=trajectory.color,
                x=Axis(title="step"),
                y=Axis(title="m"),
            )
        )

    down = -(-len(panels) // _COLUMNS)
    width = 3.4 * min(_COLUMNS, len(panels))
    return Chart(panels=panels, title=title, columns=_COLUMNS, width=width, height=2.6 * down + 0.7, legend="below")
