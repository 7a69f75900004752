"""Reinforcement learning: environments, soft actor-critic, rollout workers and report parts."""
