"""Who plays the episodes that training asks for: this process, or others that hold worlds of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mtlscale.environments._description import Simulated
from mtlscale.environments._fleet import Act, Episode, Fleet


@dataclass(frozen=True)
class Order:
    """An episode to be played: its task, the seed of its places and of the chance in its actions."""

    task: str
    goal: int
    chance: int


class Acting(Protocol):
    """A policy that travels: what decides, for orders, by their inputs."""

    def policy(self, orders: Sequence[Order]) -> Act:
        """What acts in the episodes of these orders."""
        ...


class Collectors(Protocol):
    """Those who play. Episodes do not depend on how many they are."""

    def __call__(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        """The episodes of the orders, in their order."""
        ...

    @property
    def replaced(self) -> int:
        """Worlds that broke and were replaced."""
        ...


class Collector:
    """Plays episodes in worlds of its own, which it keeps."""

    def __init__(self) -> None:
        self._fleet: Fleet | None = None

    def play(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        if self._fleet is None or self._fleet.simulated != simulated:
            self._fleet = Fleet(simulated)
        asked = [(order.task, order.goal) for order in orders]
        return self._fleet.play(asked, acting.policy(orders), width=max(1, len(asked)))

    @property
    def replaced(self) -> int:
        return 0 if self._fleet is None else self._fleet.replaced


class Here:
    """This process plays them all."""

    def __init__(self) -> None:
        self._collector = Collector()

    def __call__(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        return self._collector.play(simulated, acting, orders)

    @property
    def replaced(self) -> int:
        return self._collector.replaced


def chances(orders: Sequence[Order], steps: int, size: int) -> np.ndarray:
    """[orders, steps, size] standard normal numbers, each order's from its own seed."""
    return np.stack(
        [np.random.default_rng(order.chance).standard_normal((steps, size), dtype=np.float32) for order in orders]
    )
