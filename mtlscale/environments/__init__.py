"""Tasks that are environments: what a suite says of them, the worlds behind them, and episodes played in these."""

from mtlscale.environments._collecting import Acting, Collector, Collectors, Here, Order, chances
from mtlscale.environments._description import ACTIONS, EXTRA, GOAL, HAND, OBSERVATIONS, Simulated, episode_seed
from mtlscale.environments._fleet import Act, Episode, Fleet, WorldBroken
from mtlscale.environments._metaworld import (
    MetaWorld,
    check_package,
    check_reward_version,
    check_task_name,
    expert_of,
)
from mtlscale.environments._rendering import CannotRender, Replay, rendered

__all__ = [
    "ACTIONS",
    "EXTRA",
    "GOAL",
    "HAND",
    "OBSERVATIONS",
    "Act",
    "Acting",
    "CannotRender",
    "Collector",
    "Collectors",
    "Episode",
    "Fleet",
    "Here",
    "MetaWorld",
    "Order",
    "Replay",
    "Simulated",
    "WorldBroken",
    "chances",
    "check_package",
    "check_reward_version",
    "check_task_name",
    "episode_seed",
    "expert_of",
    "rendered",
]
