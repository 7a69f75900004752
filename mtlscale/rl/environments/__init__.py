"""Reinforcement learning: suites whose tasks are environments, Meta-World's worlds, episodes and rollout workers."""

from mtlscale.rl.environments.description import ACTIONS, EXTRA, GOAL, HAND, OBSERVATIONS, Simulated, episode_seed
from mtlscale.rl.environments.metaworld import (
    MetaWorld,
    check_package,
    check_reward_version,
    check_task_name,
    expert_of,
)
from mtlscale.rl.environments.rendering import CannotRender, Replay, rendered
from mtlscale.rl.environments.rollout_workers import Acting, Collector, Collectors, Here, Order, chances
from mtlscale.rl.environments.vector_env import Act, Episode, Fleet, WorldBroken

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
