"""Soft actor-critic: networks, replay buffer and losses."""
