"""Rollout workers: the episodes that training needs, played by this process or by others with worlds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtlscale.rl.environments.description import Simulated
from mtlscale.rl.environments.vector_env import Act, Episode, VectorEnv


@dataclass(frozen=True)
class EpisodeRequest:
    """Request for an episode: its task, the seed of its initial positions, and the seed of the noise in its actions."""

    task: str
    goal: int
    noise_seed: int


class PolicyFactory(Protocol):
    """Policy that can be sent to rollout workers."""

    def policy(self, orders: Sequence[EpisodeRequest]) -> Act:
        """Return the function that chooses actions in the episodes of these orders."""
        ...


class RolloutWorkers(Protocol):
    """Rollout workers; episodes do not depend on their number."""

    def __call__(self, simulated: Simulated, policy: PolicyFactory, orders: Sequence[EpisodeRequest]) -> list[Episode]:
        """Return the episodes of the orders, in their order."""
        ...

    @property
    def replaced(self) -> int:
        """The number of worlds that broke and were replaced."""
        ...


class RolloutWorker:
    """Rollout worker that plays episodes in worlds of its own and keeps them."""

    def __init__(self) -> None:
        self._vector_env: VectorEnv | None = None

    def play(self, simulated: Simulated, policy: PolicyFactory, orders: Sequence[EpisodeRequest]) -> list[Episode]:
        if self._vector_env is None or self._vector_env.simulated != simulated:
            self._vector_env = VectorEnv(simulated)
        tasks_and_seeds = [(order.task, order.goal) for order in orders]
        return self._vector_env.play(tasks_and_seeds, policy.policy(orders), width=max(1, len(tasks_and_seeds)))

    @property
    def replaced(self) -> int:
        return 0 if self._vector_env is None else self._vector_env.replaced


class LocalRollouts:
    """Rollout worker in this process that plays all episodes."""

    def __init__(self) -> None:
        self._worker = RolloutWorker()

    def __call__(self, simulated: Simulated, policy: PolicyFactory, orders: Sequence[EpisodeRequest]) -> list[Episode]:
        return self._worker.play(simulated, policy, orders)

    @property
    def replaced(self) -> int:
        return self._worker.replaced


def chances(orders: Sequence[EpisodeRequest], steps: int, size: int) -> np.ndarray:
    """Return standard normal noise [orders, steps, size], drawn for each order from its own seed."""
    return np.stack(
        [np.random.default_rng(order.noise_seed).standard_normal((steps, size), dtype=np.float32) for order in orders]
    )
