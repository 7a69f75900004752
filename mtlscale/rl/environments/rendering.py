"""Frames of episodes, rendered by a process of their own.

If OpenGL is missing or broken, that process ends, and no other.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtlscale.rl.environments.description import Simulated
from mtlscale.rl.environments.metaworld import MetaWorld

BACKEND = "MUJOCO_GL"  # the environment variable that selects how MuJoCo renders
INSTALL_OPENGL = "apt install libegl1 libgl1, or libosmesa6"
_RENDER = "import sys; from mtlscale.rl.environments.rendering import render; render(sys.argv[1])"
_SECONDS, _SECONDS_EACH = 120.0, 30.0  # time limits of rendering: in all, plus for each episode, on a busy machine
_ORDERS, _FRAMES, _CAUSE = "orders.npz", "frames.npz", "cause.txt"  # the last says why there are no frames


class CannotRender(Exception):
    """Rendering is impossible; the message says why, and what to install."""


@dataclass(frozen=True)
class EpisodeReplay:
    """Episode to play again.

    Attributes:
        task: Its task.
        goal: The seed of its initial positions.
        actions: Its actions [n, 4].
        steps: The steps, 0 to n, that need a frame.
    """

    task: str
    goal: int
    actions: np.ndarray
    steps: tuple[int, ...]

    def frames(self, world: MetaWorld) -> np.ndarray:
        """Return the frames as bytes [steps, FRAME, FRAME, 3]."""
        world.reset(self.goal)
        frames_by_step = {0: world.frame()} if 0 in self.steps else {}
        for step, action in enumerate(self.actions[: max(self.steps)], 1):
            world.step(action.astype(np.float64))
            if step in self.steps:
                frames_by_step[step] = world.frame()
        return np.stack([frames_by_step[step] for step in self.steps])


def rendered(simulated: Simulated, replays: Sequence[EpisodeReplay]) -> list[np.ndarray]:
    """Return the frames of each replay [steps, FRAME, FRAME, 3]; `CannotRender` says why there are none."""
    causes = []

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / _ORDERS, simulated, replays)
        for backend in backends(os.environ, sys.platform):
            (folder / _CAUSE).unlink(missing_ok=True)
            cause = _tried(folder, backend, _SECONDS + _SECONDS_EACH * len(replays))
            if cause is None:
                with np.load(folder / _FRAMES) as archive:
                    return [archive[str(index)] for index in range(len(replays))]
            causes.append(f"{backend or 'default'}: {cause}")

    raise CannotRender(f"OpenGL cannot render here ({'; '.join(causes)}): {INSTALL_OPENGL}")


def backends(variables: Mapping[str, str], platform: str) -> tuple[str | None, ...]:
    """Return the rendering backends to try in turn.

    The user's choice comes first and alone. Else, on Linux, rendering is off screen; if there is a screen, MuJoCo's
    default (None) comes before that.
    """
    if variables.get(BACKEND):
        return (variables[BACKEND],)
    if platform != "linux":
        return (None,)
    return (None, "egl", "osmesa") if variables.get("DISPLAY") else ("egl", "osmesa")


def _tried(folder: Path, backend: str | None, seconds: float) -> str | None:
    """Try a backend; return why there are no frames, or None if there are."""
    # Ray may have put the package on the path of this process alone.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if backend is not None:
        variables[BACKEND] = backend

    command = [sys.executable, "-c", _RENDER, str(folder)]

    try:
        process = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error).splitlines()[0] if isinstance(error, OSError) else f"took more than {seconds:.0f} s"

    if (folder / _FRAMES).exists():
        return None  # whatever the exit status: some drivers crash when they are unloaded
    cause = folder / _CAUSE
    if cause.exists():
        return cause.read_text(encoding="utf-8")

    error_lines = process.stderr.strip().splitlines()
    return error_lines[-1] if error_lines else f"its process ended with {process.returncode}"


def _write(path: Path, simulated: Simulated, replays: Sequence[EpisodeReplay]) -> None:
    arrays = {"reward_version": np.array(simulated.reward_version), "count": np.array(len(replays))}
    for index, replay in enumerate(replays):
        arrays |= {
            f"task {index}": np.array(replay.task),
            f"goal {index}": np.array(replay.goal),
            f"actions {index}": replay.actions,
            f"steps {index}": np.array(replay.steps),
        }
    np.savez(path, **arrays)  # type: ignore[arg-type]


def render(name: str) -> None:
    """Render the orders of a folder into frames there, or write the cause of a failure; run in a process of its own."""
    folder = Path(name)
    try:
        with np.load(folder / _ORDERS) as orders:
            frames = _played(orders)
    except Exception as error:  # drivers and their bindings raise many types
        lines = str(error).strip().splitlines() or ["no words"]
        (folder / _CAUSE).write_text(f"{type(error).__name__}: {lines[0]}", encoding="utf-8")
        return
    np.savez(folder / f"part-{_FRAMES}", **frames)  # type: ignore[arg-type]
    (folder / f"part-{_FRAMES}").replace(folder / _FRAMES)


def _played(orders: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    frames, version = {}, str(orders["reward_version"])
    for index in range(int(orders["count"])):
        task, goal, actions, steps = (orders[f"{field} {index}"] for field in ("task", "goal", "actions", "steps"))
        world = MetaWorld(str(task), version, render=True)
        try:
            frames[str(index)] = EpisodeReplay(str(task), int(goal), actions, tuple(steps.tolist())).frames(world)
        finally:
            world.close()
    return frames
