"""Rollout workers: the episodes that training needs, played by this process or by others with worlds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtlscale.rl.environments.description import Simulated
from mtlscale.rl.environments.vector_env import Act, Episode, Fleet


@dataclass(frozen=True)
class Order:
    """Request for an episode: its task, the seed of its initial positions, and the seed of the noise in its actions."""

    task: str
    goal: int
    chance: int


class Acting(Protocol):
    """Policy that can be sent to rollout workers."""

    def policy(self, orders: Sequence[Order]) -> Act:
        """Return the function that chooses actions in the episodes of these orders."""
        ...


class Collectors(Protocol):
    """Rollout workers; episodes do not depend on their number."""

    def __call__(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        """Return the episodes of the orders, in their order."""
        ...

    @property
    def replaced(self) -> int:
        """The number of worlds that broke and were replaced."""
        ...


class Collector:
    """Rollout worker that plays episodes in worlds of its own and keeps them."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    def play(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        if self._fleet is None or self._fleet.simulated != simulated:
            self._fleet = Fleet(simulated)
        tasks_and_seeds = [(order.task, order.goal) for order in orders]
        return self._fleet.play(tasks_and_seeds, acting.policy(orders), width=max(1, len(tasks_and_seeds)))

    @property
    def replaced(self) -> int:
        return 0 if self._fleet is None else self._fleet.replaced


class Here:
    """Rollout worker in this process that plays all episodes."""

    def __init__(self) -> None:
        self._collector = Collector()

    def __call__(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        return self._collector.play(simulated, acting, orders)

    @property
    def replaced(self) -> int:
        return self._collector.replaced


def chances(orders: Sequence[Order], steps: int, size: int) -> np.ndarray:
    """Return standard normal noise [orders, steps, size], drawn for each order from its own seed."""
    return np.stack(
        [np.random.default_rng(order.chance).standard_normal((steps, size), dtype=np.float32) for order in orders]
    )
