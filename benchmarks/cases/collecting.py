"""Steps of simulation a second: this process, one collector, two; and where the seconds of a learning run go.

    python benchmarks/run.py collecting --rounds 4 --episodes 4

Collectors are Ray actors with worlds of their own, which play the same orders: their episodes are compared, too. Ratios
are of rounds that take turns in one run, after a round that makes the worlds.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import numpy as np
import torch
from harness import Sheet, in_turns, local_ray, ratio, say, timed

from mtlscale.rl.datasets.metaworld import MT10
from mtlscale.rl.environments import (
    ACTIONS,
    OBSERVATIONS,
    Episode,
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


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=4, help="rounds that are timed")
    parser.add_argument("--episodes", type=int, default=2, help="of each task in a round")
    parser.add_argument("--horizon", type=int, default=100, help="steps of an episode")
    parser.add_argument("--tasks", nargs="+", default=list(MT10))
    parser.add_argument("--collectors", type=int, nargs="+", default=[1, 2])


QUICK = {"rounds": 1, "episodes": 1, "horizon": 20, "tasks": list(MT10)[:2], "collectors": [1]}


def run(options: argparse.Namespace) -> bool:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    told = described(tuple(options.tasks), options.horizon)
    actor = WithHeads(layers_of(told.inputs, (128, 128), torch.nn.ReLU), 128, 2 * ACTIONS, len(told.tasks))
    acting = GaussianPolicyFactory(actor, told.tasks, told.horizon, uniform=False)
    played: dict[str, list[list[Episode]]] = {}

    def player(name: str, play: Callable[..., list[Episode]]) -> Callable[[], None]:
        """The next round of a way to play; the first makes the worlds."""
        rounds = played.setdefault(name, [])

        def run() -> None:
            number = len(rounds)
            orders = [
                EpisodeRequest(task, episode_seed("goal", number, each), episode_seed("chance", number, each, task))
                for each in range(options.episodes)
                for task in told.tasks
            ]
            rounds.append(play(told, acting, orders))

        return run

    with local_ray(max(options.collectors)):
        ways = {"this process": player("this process", LocalRollouts())}
        for count in options.collectors:
            name = f"{count} collector{'s' * (count > 1)}"
            ways[name] = player(name, RayRolloutWorkers(count))
        times = in_turns(ways, options.rounds, clock=lambda step: timed(step)[0])

    steps = options.episodes * len(told.tasks) * told.horizon
    sheet = Sheet(f"{len(told.tasks)} tasks, {options.episodes} episodes of {told.horizon} steps a round",
                  "who plays", "steps/s", "over this process")  # fmt: skip
    for name in ways:
        sheet.row(name, round(steps / statistics.median(times[name])), ratio(times, "this process", name))
    sheet.show()
    same = all(
        np.array_equal(a.inputs, b.inputs) and np.array_equal(a.actions, b.actions)
        for rounds in played.values()
        for mine, theirs in zip(played["this process"], rounds, strict=True)
        for a, b in zip(mine, theirs, strict=True)
    )
    say(f"episodes bit by bit the same: {'yes' if same else 'NO'}", same=same)
    return same
