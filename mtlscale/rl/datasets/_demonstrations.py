"""Demonstrations for tasks that are environments: played by experts, or read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mtlscale.config import UserError
from mtlscale.rl.environments import ACTIONS, OBSERVATIONS, MetaWorld, expert_of

COLUMNS = ("task", "episode", "step", "observation", "action")
_AFTER = 10  # steps played after the first success, so that a policy also learns to stay


@dataclass(frozen=True)
class Demonstrations:
    """The demonstrations of one task.

    Attributes:
        episode: The episode of each sample, [n].
        step: The step of each sample within its episode, [n].
        observations: [n, 39].
        actions: [n, 4].
        solved: Number of episodes that are known to have succeeded.
    """

    episode: np.ndarray
    step: np.ndarray
    observations: np.ndarray
    actions: np.ndarray
    solved: int = 0

    @property
    def episodes(self) -> int:
        """The number of episodes."""
        return int(self.episode.max(initial=-1)) + 1

    @classmethod
    def by_task(cls, table: pa.Table, tasks: Sequence[str]) -> dict[str, Demonstrations]:
        """Return task -> its samples in order, episodes numbered from 0."""
        demonstrations = {}
        for task in tasks:
            samples = table.filter(pc.equal(table["task"], task)).sort_by(
                [("episode", "ascending"), ("step", "ascending")]
            )
            samples = samples.combine_chunks()

            _, episode = np.unique(samples["episode"].to_numpy(), return_inverse=True)
            solved = (
                pc.unique(samples.filter(samples["success"])["episode"]) if "success" in samples.column_names else []
            )

            demonstrations[task] = cls(
                episode,
                samples["step"].to_numpy(),
                _matrix(samples["observation"], OBSERVATIONS),
                _matrix(samples["action"], ACTIONS),
                len(solved),
            )
        return demonstrations


class EpisodeMaker:
    """Player of orders (task, episode, goal) by the tasks' experts, one row per step.

    Labels are the expert's actions; the executed actions have normal noise added.
    """

    def __init__(self, reward_version: str, horizon: int, noise: float) -> None:
        self.reward_version, self.horizon, self.noise = reward_version, horizon, noise
        self._worlds: dict[str, MetaWorld] = {}

    def __call__(self, table: pa.Table) -> pa.Table:
        rows: list[tuple[str, int, int, np.ndarray, np.ndarray, bool]] = []
        for order in table.to_pylist():
            rows += self._episode(order["task"], order["episode"], order["goal"])

        return pa.table(
            {
                "task": [row[0] for row in rows],
                "episode": [row[1] for row in rows],
                "step": [row[2] for row in rows],
                "observation": pa.array([row[3] for row in rows], pa.list_(pa.float64())),
                "action": pa.array([row[4] for row in rows], pa.list_(pa.float64())),
                "success": [row[5] for row in rows],
            }
        )

    def _episode(self, task: str, episode: int, goal: int) -> list[tuple[str, int, int, np.ndarray, np.ndarray, bool]]:
        if task not in self._worlds:
            self._worlds[task] = MetaWorld(task, self.reward_version)
        world = self._worlds[task]

        expert, rng = expert_of(task), np.random.default_rng([goal, episode])
        observation, steps_left = world.reset(goal), _AFTER

        rows = []
        for step in range(self.horizon):
            action = expert(observation)
            executed = np.clip(action + self.noise * rng.standard_normal(ACTIONS), -1.0, 1.0)
            previous, (observation, _, success) = observation, world.step(executed)
            rows.append((task, episode, step, previous, action, success))
            steps_left -= success
            if steps_left <= 0:
                break

        return rows


def from_file(name: str, path: Path, tasks: Sequence[str]) -> dict[str, Demonstrations]:
    """Return the demonstrations of the given tasks in a Parquet file.

    Raises:
        UserError: The file is missing or no Parquet file, lacks a column or a task, or has values of another type, of
            another length, outside the range of actions, or not finite.
    """
    if not path.is_file():
        raise UserError(f"{name}: there is no file {path}; name a Parquet file of demonstrations, or drop `file`")
    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise UserError(f"{name}: {path.name} is no Parquet file: {error}") from None

    for column in COLUMNS:
        if column not in table.column_names:
            raise UserError(f"{name}: {path.name} has no column {column!r}; it needs {', '.join(COLUMNS)}")

    for column, expected, fits in (
        ("step", "whole numbers", pa.types.is_integer),
        ("observation", "lists of numbers", _holds_numbers),
        ("action", "lists of numbers", _holds_numbers),
    ):
        kind, gaps = table[column].type, table[column].null_count
        if not fits(kind) or gaps:
            empty = f", {gaps} of them empty" if gaps else ""
            raise UserError(
                f"{name}: {path.name}: column {column} holds values of type {kind}{empty}; it should hold {expected}"
            )

    file_tasks = pc.unique(table["task"]).to_pylist()
    for task in tasks:
        if task not in file_tasks:
            raise UserError(
                f"{name}: {path.name} has no demonstration of {task}, but of {', '.join(map(str, file_tasks))}; "
                "set `tasks`"
            )

    for column, size in (("observation", OBSERVATIONS), ("action", ACTIONS)):
        sizes = pc.unique(pc.list_value_length(table[column])).to_pylist()
        if sizes != [size]:
            raise UserError(f"{name}: {path.name}: column {column} holds {sizes} numbers a step, the tasks have {size}")

    demonstrations = Demonstrations.by_task(table.select(COLUMNS), tasks)
    for task, samples in demonstrations.items():
        wrong = ~(np.isfinite(samples.observations).all(1) & np.isfinite(samples.actions).all(1))
        if wrong.any():
            row = int(wrong.argmax())
            raise UserError(
                f"{name}: {path.name}: {task}, episode {samples.episode[row]}, step {samples.step[row]} has a number "
                "that is none; leave the episode out"
            )
        if (np.abs(samples.actions) > 1).any():
            raise UserError(f"{name}: {path.name}: {task} has actions outside [-1, 1]; clip them")
    return demonstrations


def _holds_numbers(kind: pa.DataType) -> bool:
    if not any(is_kind(kind) for is_kind in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return False
    return bool(pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _matrix(column: pa.ChunkedArray, size: int) -> np.ndarray:
    values = pc.list_flatten(column).to_numpy()
    return np.asarray(values, dtype=np.float64).reshape(-1, size)
