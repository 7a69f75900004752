"""What a suite says of the environments behind its tasks, and how observations become the network's inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mtlscale.spec import TaskSuite, UserError

EXTRA = "environments"  # the suite's extra that has it
OBSERVATIONS, ACTIONS = 39, 4  # numbers of an observation and of an action in Meta-World
HAND, GOAL = slice(0, 3), slice(36, 39)  # of an observation: where these are, in metres


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """The environments of a suite: everything but the policy that decides what an episode is.

    mean, std [39]: of observations, which inputs are normalised by. tasks: those that were prepared, in the order of
    the one-hot vectors that inputs end with where `task_id`. positions: whether every episode begins with places of its
    own (random), or with the same (fixed). episodes: split -> how many a task is measured by. horizon: steps.
    """

    version: str  # of metaworld
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
        """What a suite says; None where its tasks are no environments."""
        told = suite.extras.get(EXTRA)
        if told is None:
            return None
        sequences = {name: tuple(told[name]) for name in ("tasks", "mean", "std")}
        return cls(**{**told, **sequences})

    def told(self) -> dict[str, Any]:
        """As a suite keeps it."""
        return asdict(self)

    @property
    def inputs(self) -> int:
        """Numbers of an input."""
        return OBSERVATIONS + (len(self.tasks) if self.task_id else 0)

    def place(self, task: str) -> int:
        """Of a task among those that were prepared."""
        if task not in self.tasks:
            raise UserError(f"there is no environment {task!r} in this set; it has: {', '.join(self.tasks)}")
        return self.tasks.index(task)

    def input(self, tasks: Sequence[str], observations: np.ndarray) -> np.ndarray:
        """[n, inputs] float32 of observations [n, 39] of these tasks [n]."""
        rows = np.zeros((len(observations), self.inputs), dtype=np.float32)
        rows[:, :OBSERVATIONS] = (observations - np.array(self.mean)) / np.array(self.std)
        if self.task_id:
            rows[np.arange(len(tasks)), [OBSERVATIONS + self.place(task) for task in tasks]] = 1.0
        return rows

    def goal(self, split: str, number: int) -> int:
        """The seed of the places that an episode of a split begins with: no episode of another split has it."""
        return self.seed if self.positions == "fixed" else episode_seed(self.seed, split, number)


def episode_seed(*parts: int | str) -> int:
    """A seed below 2^31 that is a function of these parts alone."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
