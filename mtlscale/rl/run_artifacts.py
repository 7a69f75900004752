"""The picture of a finished run whose tasks are environments: an episode of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.config import UserError
from mtlscale.report.charts.vega import save
from mtlscale.rl.environments import GOAL, HAND, OBSERVATIONS, CannotRender, Episode, EpisodeReplay, Simulated, rendered
from mtlscale.rl.evaluation import EpisodeEvaluator
from mtlscale.rl.report.episode_figures import Strip, Trajectory, strip_chart, trajectory_chart

if TYPE_CHECKING:
    from mtlscale.training import Trainer

FRAMES = 6  # of an episode


def draw_episodes(trainer: Trainer, folder: Path) -> None:
    """Draw a test episode of each task, played by the chosen network, as its frames in `episodes.png`.

    Where nothing can be rendered, draw the trajectory of the hand, and add a note with the reason.
    """
    simulation = trainer.evaluator.simulation if isinstance(trainer.evaluator, EpisodeEvaluator) else None
    if simulation is None:
        return
    path, run, simulated = folder / "episodes.png", trainer.run, simulation.environments
    try:
        with trainer.session.chosen():
            episodes = simulation.first_episodes(trainer.model)
    except UserError as error:  # a broken environment: the measured metrics still count
        trainer.notes.append(f"no {path.name}: {error}")
        return

    title = f"{run.dataset}, {run.method}, seed {run.seed}"
    path.parent.mkdir(parents=True, exist_ok=True)

    shown = [frame_steps(len(episode)) for episode in episodes]
    goal = simulated.goal("test", 0)
    replays = [
        EpisodeReplay(played.task, goal, played.actions, steps) for played, steps in zip(episodes, shown, strict=True)
    ]

    try:
        frames = rendered(simulated, replays)
    except CannotRender as error:
        trainer.notes.append(f"{path.name} shows trajectories of the hand, not frames: {error}")
        save([trajectory_chart([hand_trajectory(simulated, episode) for episode in episodes], title)], path)
        return

    strips = [
        Strip(task=played.task, success=played.success, steps=len(played), frames=episode_frames, shown=steps)
        for played, episode_frames, steps in zip(episodes, frames, shown, strict=True)
    ]
    save([strip_chart(strips, title)], path)


def frame_steps(length: int) -> tuple[int, ...]:
    """Return evenly spaced steps from the start to the end of an episode, each once."""
    return tuple(dict.fromkeys(np.linspace(0, length, FRAMES).round().astype(int).tolist()))


def hand_trajectory(environments: Simulated, episode: Episode) -> Trajectory:
    """Return an episode's trajectory in metres, from its inputs before they were normalised."""
    observations = episode.inputs[:, :OBSERVATIONS] * np.array(environments.std) + np.array(environments.mean)
    return Trajectory(
        task=episode.task,
        success=episode.success,
        steps=len(episode),
        hand=observations[:, HAND],
        goal=observations[-1, GOAL],
    )
