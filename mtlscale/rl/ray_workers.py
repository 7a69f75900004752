"""Rollout workers: Ray actors that play the episodes training asks for, wherever the cluster has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from mtlscale.rl.environments import Acting, Collector, Collectors, Episode, Here, Order, Simulated


def collectors_of(count: int) -> Collectors:
    """Return `count` Ray actors as collectors; with 0, this process itself."""
    return RayCollectors(count) if count else Here()


class RayCollectors:
    """Rollout workers: Ray actors that keep their environments from round to round.

    They start when first asked and end with their owner, or by `close`. None of them reserves a CPU in Ray: the process
    that trains waits while they play.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._actors: list[Any] = []
        self._replaced: list[int] = []

    def __call__(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        if not self._actors:
            remote = ray.remote(num_cpus=0, max_restarts=2, scheduling_strategy="SPREAD")(_Player)
            self._actors = [remote.remote() for _ in range(self.count)]

        policy = ray.put(acting)
        parts = [list(orders[actor_index :: self.count]) for actor_index in range(self.count)]
        pending = [actor.play.remote(simulated, policy, part) for actor, part in zip(self._actors, parts, strict=True)]
        played = ray.get(pending)
        self._replaced = [replaced for _, replaced in played]

        episodes_in_order: list[Episode | None] = [None] * len(orders)
        for actor_index, (episodes, _) in enumerate(played):
            episodes_in_order[actor_index :: self.count] = episodes
        return [episode for episode in episodes_in_order if episode is not None]

    @property
    def replaced(self) -> int:
        return sum(self._replaced)

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


class _Player:
    """Rollout worker that runs in an actor."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._collector = Collector()

    def play(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> tuple[list[Episode], int]:
        """Return the episodes of the orders, and how many environments have broken so far."""
        return (self._collector.play(simulated, acting, orders) if orders else []), self._collector.replaced
