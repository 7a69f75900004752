"""Steps of simulation a second: this process, one collector, two; and where the seconds of a learning run go.

    python benchmarks/collecting.py --rounds 4 --episodes 4

Collectors are Ray actors with worlds of their own, which play the same orders: their episodes are compared, too. Ratios
are of rounds that take turns in one run, after a round that makes the worlds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from mtlscale.rl.datasets.metaworld import MT10
from mtlscale.rl.environments import (
    ACTIONS,
    OBSERVATIONS,
    EpisodeRequest,
    LocalRollouts,
    Simulated,
    check_package,
    episode_seed,
)
from mtlscale.rl.ray_workers import RayRolloutWorkers
from mtlscale.rl.sac.module import GaussianPolicyFactory
from mtlscale.rl.sac.networks import WithHeads, layers_of


def described(tasks: tuple[str, ...], horizon: int) -> Simulated:
    """Environments whose observations are taken as they are."""
    return Simulated(
        version=check_package(),
        reward_version="v2",
        positions="random",
        horizon=horizon,
        tasks=tasks,
        task_id=True,
        mean=(0.0,) * OBSERVATIONS,
        std=(1.0,) * OBSERVATIONS,
        episodes={},
        seed=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4, help="rounds that are timed")
    parser.add_argument("--episodes", type=int, default=2, help="of each task in a round")
    parser.add_argument("--horizon", type=int, default=100, help="steps of an episode")
    parser.add_argument("--tasks", nargs="+", default=list(MT10))
    parser.add_argument("--collectors", type=int, nargs="+", default=[1, 2])
    asked = parser.parse_args()

    import os

    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # else collectors starve beside other programs
    torch.set_num_threads(1)
    torch.manual_seed(0)
    told = described(tuple(asked.tasks), asked.horizon)
    actor = WithHeads(layers_of(told.inputs, (128, 128), torch.nn.ReLU), 128, 2 * ACTIONS, len(told.tasks))
    acting = GaussianPolicyFactory(actor, told.tasks, told.horizon, uniform=False)
    ray.init(include_dashboard=False, num_cpus=max(asked.collectors), _node_ip_address="127.0.0.1", log_to_driver=False)
    ways: dict[str, Callable[..., list]] = {"this process": LocalRollouts()}
    ways |= {f"{count} collector{'s' * (count > 1)}": RayRolloutWorkers(count) for count in asked.collectors}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    same = True
    for number in range(asked.rounds + 1):  # the first makes the worlds
        orders = [
            EpisodeRequest(task, episode_seed("goal", number, episode), episode_seed("chance", number, episode, task))
            for episode in range(asked.episodes)
            for task in told.tasks
        ]
        first = None
        for name, play in ways.items():
            started = time.perf_counter()
            episodes = play(told, acting, orders)
            if number:
                seconds[name].append(time.perf_counter() - started)
            first = first or episodes
            same &= all(
                np.array_equal(a.inputs, b.inputs) and np.array_equal(a.actions, b.actions)
                for a, b in zip(first, episodes, strict=True)
            )
    steps = asked.episodes * len(told.tasks) * told.horizon
    base = statistics.median(seconds["this process"])
    each = f"{asked.episodes} episodes of {told.horizon} steps each a round"
    print(f"{len(told.tasks)} tasks, {each}, {asked.rounds} rounds\n")
    print("| who plays | steps/s | over this process |\n| --- | ---: | ---: |")
    for name, taken in seconds.items():
        middle = statistics.median(taken)
        print(f"| {name} | {steps / middle:,.0f} | {base / middle:.2f} |")
    print(f"\nepisodes bit by bit the same: {'yes' if same else 'NO'}")


if __name__ == "__main__":
    main()
