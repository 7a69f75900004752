"""Rollout workers: Ray actors that play the episodes training asks for, wherever the cluster has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray

from mtlscale.rl.environments import (
    Episode,
    EpisodeRequest,
    LocalRollouts,
    PolicyFactory,
    RolloutWorker,
    RolloutWorkers,
    Simulated,
)


def collectors_of(count: int) -> RolloutWorkers:
    """Return `count` Ray actors as collectors; with 0, this process itself."""
    return RayRolloutWorkers(count) if count else LocalRollouts()


class RayRolloutWorkers:
    """Rollout workers: Ray actors that keep their environments from round to round.

    They start when first asked and end with their owner, or by `close`. None of them reserves a CPU in Ray: the process
    that trains waits while they play.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._actors: list[Any] = []
        self._replaced: list[int] = []

    def __call__(self, simulated: Simulated, policy: PolicyFactory, orders: Sequence[EpisodeRequest]) -> list[Episode]:
        if not self._actors:
            remote = ray.remote(num_cpus=0, max_restarts=2, scheduling_strategy="SPREAD")(_RolloutActor)
            self._actors = [remote.remote() for _ in range(self.count)]

        policy_ref = ray.put(policy)
        parts = [list(orders[actor_index :: self.count]) for actor_index in range(self.count)]
        pending = [
            actor.play.remote(simulated, policy_ref, part) for actor, part in zip(self._actors, parts, strict=True)
        ]
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


class _RolloutActor:
    """Rollout worker that runs in an actor."""

    def __init__(self) -> None:
        import torch

        torch.set_num_threads(1)
        self._worker = RolloutWorker()

    def play(
        self, simulated: Simulated, policy: PolicyFactory, orders: Sequence[EpisodeRequest]
    ) -> tuple[list[Episode], int]:
        """Return the episodes of the orders, and how many environments have broken so far."""
        return (self._worker.play(simulated, policy, orders) if orders else []), self._worker.replaced
