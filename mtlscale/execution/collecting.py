"""Ray actors that play the episodes training asks for, wherever the cluster has room for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from mtlscale.environments import Acting, Collector, Collectors, Episode, Here, Order, Simulated


def collectors_of(count: int) -> Collectors:
    """So many actors; 0: this process itself."""
    return RayCollectors(count) if count else Here()


class RayCollectors:
    """Actors that keep their worlds from round to round. They are started when first asked and end with whoever holds
    this, or by `close`. Each holds no CPU of its own in Ray's books: whoever trains waits while they play."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._actors: list[Any] = []
        self._replaced: list[int] = []

    def __call__(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> list[Episode]:
        if not self._actors:
            remote = ray.remote(num_cpus=0, max_restarts=2, scheduling_strategy="SPREAD")(_Player)
            self._actors = [remote.remote() for _ in range(self.count)]
        policy = ray.put(acting)
        parts = [list(orders[place :: self.count]) for place in range(self.count)]
        asked = [actor.play.remote(simulated, policy, part) for actor, part in zip(self._actors, parts, strict=True)]
        played = ray.get(asked)
        self._replaced = [replaced for _, replaced in played]
        found: list[Episode | None] = [None] * len(orders)
        for place, (episodes, _) in enumerate(played):
            found[place :: self.count] = episodes
        return [episode for episode in found if episode is not None]

    @property
    def replaced(self) -> int:
        return sum(self._replaced)

    def close(self) -> None:
        for actor in self._actors:
            ray.kill(actor)
        self._actors = []


class _Player:
    """What runs in an actor."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._collector = Collector()

    def play(self, simulated: Simulated, acting: Acting, orders: Sequence[Order]) -> tuple[list[Episode], int]:
        """The episodes, and how many worlds have broken so far."""
        return (self._collector.play(simulated, acting, orders) if orders else []), self._collector.replaced
