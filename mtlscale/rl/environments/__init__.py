"""Reinforcement learning: suites whose tasks are environments, Meta-World's worlds, episodes and rollout workers."""

from mtlscale.lazy import lazily

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "ACTIONS": ".description",
        "EXTRA": ".description",
        "GOAL": ".description",
        "HAND": ".description",
        "OBSERVATIONS": ".description",
        "Act": ".vector_env",
        "CannotRender": ".rendering",
        "Episode": ".vector_env",
        "EpisodeReplay": ".rendering",
        "EpisodeRequest": ".rollout_workers",
        "LocalRollouts": ".rollout_workers",
        "MetaWorld": ".metaworld",
        "PolicyFactory": ".rollout_workers",
        "RolloutWorker": ".rollout_workers",
        "RolloutWorkers": ".rollout_workers",
        "Simulated": ".description",
        "VectorEnv": ".vector_env",
        "WorldBroken": ".vector_env",
        "chances": ".rollout_workers",
        "check_package": ".metaworld",
        "check_reward_version": ".metaworld",
        "check_task_name": ".metaworld",
        "episode_seed": ".description",
        "expert_of": ".metaworld",
        "rendered": ".rendering",
    },
)
