"""Pictures of an episode of each task: what a camera saw, or the hand's trajectory where nothing can be rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.colors import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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


def strip_figure(strips: Sequence[Strip], title: str = "") -> Figure:
    """Draw a row per episode: its task and outcome, then its frames."""
    columns = max(len(strip.shown) for strip in strips)
    with style():
        figure = new_figure(1.5 + columns * _SIDE, len(strips) * _SIDE + 0.4)
        panels = figure.subplots(len(strips), columns, squeeze=False)

        for row, strip in zip(panels, strips, strict=True):
            for panel in row:
                _bare(panel)
            for panel, frame, step in zip(row, strip.frames, strip.shown, strict=False):
                panel.imshow(frame)
                placement: dict[str, Any] = {"xy": (0.04, 0.04), "xycoords": "axes fraction", "fontsize": 7.5}
                panel.annotate(
                    f"step {step}", color="white", bbox={"color": "#1f2328", "alpha": 0.6, "pad": 1.5}, **placement
                )
            label = f"{strip.task}\n{strip.describe}"
            row[0].set_ylabel(label, rotation=0, ha="right", va="center", color=strip.color, labelpad=6)

        if title:
            figure.suptitle(title)
    return figure


def trajectory_figure(trajectories: Sequence[Trajectory], title: str = "") -> Figure:
    """Draw a panel per episode.

    It has each coordinate of the hand by step, and that of the goal dashed in the same colour.
    """
    columns = min(_COLUMNS, len(trajectories))
    rows = -(-len(trajectories) // columns)
    with style():
        figure = new_figure(3.4 * columns, 2.4 * rows + 0.7)
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel in panels[len(trajectories) :]:
            panel.remove()

        for panel, trajectory in zip(panels, trajectories, strict=False):
            for dimension, axis in enumerate("xyz"):
                panel.plot(trajectory.hand[:, dimension], color=COLORS[dimension], label=f"hand, {axis}")
                panel.axhline(
                    trajectory.goal[dimension],
                    color=COLORS[dimension],
                    linestyle="--",
                    linewidth=1,
                    label=f"goal, {axis}",
                )
            panel.set_title(f"{trajectory.task}: {trajectory.describe}", color=trajectory.color)
            panel.set_xlabel("step")
            panel.set_ylabel("m")

        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", frameon=False, ncols=6, fontsize=7.5)
        if title:
            figure.suptitle(title)
    return figure


def _bare(panel: Axes) -> None:
    """Remove ticks and frame; a label stays."""
    panel.set_xticks([])
    panel.set_yticks([])
    panel.grid(visible=False)
    for side in panel.spines.values():
        side.set_visible(False)
