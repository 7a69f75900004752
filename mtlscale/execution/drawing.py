"""What a trained network does, to look at: predictions beside the truth where tasks have maps or tags, an episode of
each where they are environments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mtlscale.environments import GOAL, HAND, OBSERVATIONS, CannotRender, Episode, Replay, Simulated, rendered
from mtlscale.report.canvas import save
from mtlscale.report.episodes import Strip, Trajectory, strip_figure, trajectory_figure
from mtlscale.report.pictures import Maps, picture_figure
from mtlscale.report.sentences import sentences_page
from mtlscale.spec import Run, Task, TaskSuite, UserError

if TYPE_CHECKING:
    from torch import Tensor

    from mtlscale.training import Pictures, Trainer
    from mtlscale.training.simulation import Simulation

FRAMES = 6  # of an episode


def draw(pictures: Pictures, suite: TaskSuite, run: Run, path: Path) -> None:
    """Predictions beside truth; nothing where no task has maps that can be shown."""
    maps = [_maps(task, *pictures.maps[task.name]) for task in suite.tasks if task.name in pictures.maps]
    shown = [one for one in maps if one is not None]
    if shown:
        path.parent.mkdir(parents=True, exist_ok=True)
        save(picture_figure(pictures.images.numpy(), shown, f"{run.dataset}, {run.method}, seed {run.seed}"), path)


def write_sentences(trainer: Trainer, path: Path) -> None:
    """Tags of a few test sentences beside the true ones, as a page."""
    from mtlscale.training.tagged import tagged

    run = trainer.run
    found = tagged(trainer.session, trainer.suite, trainer.batches)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(sentences_page(f"{run.dataset}, {run.method}, seed {run.seed}", found), encoding="utf-8")


def draw_episodes(trainer: Trainer, simulation: Simulation, path: Path) -> None:
    """A test episode of each task by the chosen network: its frames; where nothing can be rendered, the trajectory of
    its hand, and a note that says why."""
    run, told = trainer.run, simulation.told
    try:
        with trainer.session.chosen():
            episodes = simulation.first_episodes(trainer.model)
    except UserError as error:  # a broken environment: what was measured counts all the same
        trainer.notes.append(f"no {path.name}: {error}")
        return
    title = f"{run.dataset}, {run.method}, seed {run.seed}"
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = [frame_steps(len(episode)) for episode in episodes]
    goal = told.goal("test", 0)
    replays = [Replay(of.task, goal, of.actions, steps) for of, steps in zip(episodes, shown, strict=True)]
    try:
        frames = rendered(told, replays)
    except CannotRender as error:
        trainer.notes.append(f"{path.name} shows trajectories of the hand, not frames: {error}")
        save(trajectory_figure([hand_trajectory(told, episode) for episode in episodes], title), path)
        return
    strips = [
        Strip(task=of.task, success=of.success, steps=len(of), frames=found, shown=steps)
        for of, found, steps in zip(episodes, frames, shown, strict=True)
    ]
    save(strip_figure(strips, title), path)


def frame_steps(length: int) -> tuple[int, ...]:
    """Evenly spaced from the start to the end of an episode, each once."""
    return tuple(dict.fromkeys(np.linspace(0, length, FRAMES).round().astype(int).tolist()))


def hand_trajectory(told: Simulated, episode: Episode) -> Trajectory:
    """Of an episode, in metres: its inputs as they were before they were normalised."""
    seen = episode.inputs[:, :OBSERVATIONS] * np.array(told.std) + np.array(told.mean)
    return Trajectory(
        task=episode.task, success=episode.success, steps=len(episode), hand=seen[:, HAND], goal=seen[-1, GOAL]
    )


def _maps(task: Task, guess: Tensor, truth: Tensor) -> Maps | None:
    if task.loss == "cross_entropy":
        return Maps(task.name, "classes", guess.argmax(1).numpy(), truth.numpy(), task.classes)
    if task.loss == "cosine":
        return Maps(task.name, "normals", guess.double().numpy(), truth.double().numpy())
    if task.outputs == 1:
        guess = guess.sigmoid() if task.loss == "bce" else guess
        return Maps(task.name, "numbers", guess[:, 0].double().numpy(), truth[:, 0].double().numpy())
    return None
