"""Frames of episodes. A process of its own renders them: where OpenGL is missing or broken, that process ends, and no
other."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mtlscale.environments._description import Simulated
from mtlscale.environments._metaworld import MetaWorld

BACKEND = "MUJOCO_GL"  # the variable that says how MuJoCo renders
INSTALL_OPENGL = "apt install libegl1 libgl1, or libosmesa6"
_RENDER = "import sys; from mtlscale.environments._rendering import render; render(sys.argv[1])"
_SECONDS, _SECONDS_EACH = 120.0, 30.0  # that rendering may take, and for each episode, on a busy machine
_ORDERS, _FRAMES, _CAUSE = "orders.npz", "frames.npz", "cause.txt"  # the last: why there are none


class CannotRender(Exception):
    """Why there are no frames, and what to install."""


@dataclass(frozen=True)
class Replay:
    """An episode that is played again: its task, the seed of its places, its actions [n, 4], and the steps, 0 to n,
    that frames are wanted of."""

    task: str
    goal: int
    actions: np.ndarray
    steps: tuple[int, ...]

    def frames(self, world: MetaWorld) -> np.ndarray:
        """[steps, FRAME, FRAME, 3] bytes."""
        world.reset(self.goal)
        found = {0: world.frame()} if 0 in self.steps else {}
        for step, action in enumerate(self.actions[: max(self.steps)], 1):
            world.step(action.astype(np.float64))
            if step in self.steps:
                found[step] = world.frame()
        return np.stack([found[step] for step in self.steps])


def rendered(simulated: Simulated, replays: Sequence[Replay]) -> list[np.ndarray]:
    """The frames of each replay [steps, FRAME, FRAME, 3]. `CannotRender` says why there are none."""
    causes = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / _ORDERS, simulated, replays)
        for backend in backends(os.environ, sys.platform):
            (folder / _CAUSE).unlink(missing_ok=True)
            cause = _tried(folder, backend, _SECONDS + _SECONDS_EACH * len(replays))
            if cause is None:
                with np.load(folder / _FRAMES) as found:
                    return [found[str(place)] for place in range(len(replays))]
            causes.append(f"{backend or 'default'}: {cause}")
    raise CannotRender(f"OpenGL cannot render here ({'; '.join(causes)}): {INSTALL_OPENGL}")


def backends(variables: Mapping[str, str], platform: str) -> tuple[str | None, ...]:
    """What to try in turn: what the user says; else, on Linux, off screen, where there is a screen after what MuJoCo
    does by itself (None)."""
    if variables.get(BACKEND):
        return (variables[BACKEND],)
    if platform != "linux":
        return (None,)
    return (None, "egl", "osmesa") if variables.get("DISPLAY") else ("egl", "osmesa")


def _tried(folder: Path, backend: str | None, seconds: float) -> str | None:
    """Why there are no frames; None where there are."""
    # The program may have been given to this process alone, as Ray does.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    if backend is not None:
        variables[BACKEND] = backend
    command = [sys.executable, "-c", _RENDER, str(folder)]
    try:
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error).splitlines()[0] if isinstance(error, OSError) else f"took more than {seconds:.0f} s"
    if (folder / _FRAMES).exists():
        return None  # however the process has ended: some drivers fall over when they are put away
    cause = folder / _CAUSE
    if cause.exists():
        return cause.read_text(encoding="utf-8")
    said = done.stderr.strip().splitlines()
    return said[-1] if said else f"its process ended with {done.returncode}"


def _write(path: Path, simulated: Simulated, replays: Sequence[Replay]) -> None:
    arrays = {"reward_version": np.array(simulated.reward_version), "count": np.array(len(replays))}
    for place, replay in enumerate(replays):
        arrays |= {
            f"task {place}": np.array(replay.task),
            f"goal {place}": np.array(replay.goal),
            f"actions {place}": replay.actions,
            f"steps {place}": np.array(replay.steps),
        }
    np.savez(path, **arrays)  # type: ignore[arg-type]


def render(name: str) -> None:
    """In the process of its own: orders of a folder become frames in it, or the cause why not."""
    folder = Path(name)
    try:
        with np.load(folder / _ORDERS) as orders:
            frames = _played(orders)
    except Exception as error:  # whatever a driver or a binding of it comes up with
        lines = str(error).strip().splitlines() or ["no words"]
        (folder / _CAUSE).write_text(f"{type(error).__name__}: {lines[0]}", encoding="utf-8")
        return
    np.savez(folder / f"part-{_FRAMES}", **frames)  # type: ignore[arg-type]
    (folder / f"part-{_FRAMES}").replace(folder / _FRAMES)


def _played(orders: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found, version = {}, str(orders["reward_version"])
    for place in range(int(orders["count"])):
        task, goal, actions, steps = (orders[f"{of} {place}"] for of in ("task", "goal", "actions", "steps"))
        world = MetaWorld(str(task), version, render=True)
        try:
            found[str(place)] = Replay(str(task), int(goal), actions, tuple(steps.tolist())).frames(world)
        finally:
            world.close()
    return found
