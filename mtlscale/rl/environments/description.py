"""Description of the environments behind a suite's tasks, and conversion of observations into network inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtlscale.config import TaskSuite, UserError

EXTRA = "environments"  # the key of the description in the suite's extras
OBSERVATIONS, ACTIONS = 39, 4  # numbers of an observation and of an action in Meta-World
HAND, GOAL = slice(0, 3), slice(36, 39)  # slices of an observation: their positions in metres


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The environments of a suite: everything but the policy that determines an episode.

    Attributes:
        version: The version of metaworld.
        reward_version: The version of its reward functions.
        positions: "random" if every episode starts with positions of its own, "fixed" if all start with the same.
        horizon: Steps of an episode.
        tasks: The prepared tasks, in the order of the one-hot vectors that end the inputs if `task_id`.
        task_id: Whether inputs end with the one-hot vector of their task.
        mean: Mean of the observations [39], which normalises the inputs.
        std: Standard deviation of the observations [39], likewise.
        episodes: Split -> number of episodes that a task is measured by.
        seed: The seed that the seeds of episodes derive from.
    """

    version: str
    reward_version: str
    positions: str
    horizon: int
    tasks: tuple[str, ...]
    task_id: bool
    mean: tuple[float, ...]
    std: tuple[float, ...]
    episodes: Mapping[str, int]
    seed: int

    @classmethod
    def of(cls, suite: TaskSuite) -> Simulated | None:
        """Return the description in a suite; None if its tasks are no environments."""
        description = suite.extras.get(EXTRA)
        if description is None:
            return None
        sequences = {name: tuple(description[name]) for name in ("tasks", "mean", "std")}
        return cls(**{**description, **sequences})

    def as_extra(self) -> dict[str, Any]:
        """Return the description in the form that a suite stores."""
        return asdict(self)

    @property
    def inputs(self) -> int:
        """The number of values of an input."""
        return OBSERVATIONS + (len(self.tasks) if self.task_id else 0)

    def task_index(self, task: str) -> int:
        """Return the index of a task among the prepared tasks."""
        if task not in self.tasks:
            raise UserError(f"there is no environment {task!r} in this set; it has: {', '.join(self.tasks)}")
        return self.tasks.index(task)

    def input(self, tasks: Sequence[str], observations: np.ndarray) -> np.ndarray:
        """Return inputs [n, inputs] float32 for observations [n, 39] of tasks [n]."""
        rows = np.zeros((len(observations), self.inputs), dtype=np.float32)
        rows[:, :OBSERVATIONS] = (observations - np.array(self.mean)) / np.array(self.std)
        if self.task_id:
            rows[np.arange(len(tasks)), [OBSERVATIONS + self.task_index(task) for task in tasks]] = 1.0
        return rows

    def goal(self, split: str, number: int) -> int:
        """Return the seed of an episode's initial positions; unless they are fixed, no other split has it."""
        return self.seed if self.positions == "fixed" else episode_seed(self.seed, split, number)


def episode_seed(*parts: int | str) -> int:
    """Return a seed below 2^31 that depends on these parts alone."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
