"""Reinforcement learning: suites whose tasks are environments, Meta-World's worlds, episodes and rollout workers."""

from mtlscale.rl.environments.description import ACTIONS, EXTRA, GOAL, HAND, OBSERVATIONS, Simulated, episode_seed
from mtlscale.rl.environments.metaworld import (
    MetaWorld,
    check_package,
    check_reward_version,
    check_task_name,
    expert_of,
)
from mtlscale.rl.environments.rendering import CannotRender, EpisodeReplay, rendered
from mtlscale.rl.environments.rollout_workers import (
    EpisodeRequest,
    LocalRollouts,
    PolicyFactory,
    RolloutWorker,
    RolloutWorkers,
    chances,
)
from mtlscale.rl.environments.vector_env import Act, Episode, VectorEnv, WorldBroken

__all__ = [
    "ACTIONS",
    "EXTRA",
    "GOAL",
    "HAND",
    "OBSERVATIONS",
    "Act",
    "CannotRender",
    "Episode",
    "EpisodeReplay",
    "EpisodeRequest",
    "LocalRollouts",
    "MetaWorld",
    "PolicyFactory",
    "RolloutWorker",
    "RolloutWorkers",
    "Simulated",
    "VectorEnv",
    "WorldBroken",
    "chances",
    "check_package",
    "check_reward_version",
    "check_task_name",
    "episode_seed",
    "expert_of",
    "rendered",
]
