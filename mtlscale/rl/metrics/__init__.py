"""Metrics of episodes in a task's environment."""
