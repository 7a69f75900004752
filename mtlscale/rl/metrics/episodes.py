"""Metrics of policies, which `mtlscale.rl.evaluation` measures by episodes."""

from __future__ import annotations

from mtlscale.metrics import Metric


class Success(Metric):
    """Episodes in the task's environment in which the policy succeeds at any step."""

    name = "success"
    higher_is_better = True
    losses = ("mse", "l1")
    unit = "%"
    simulated = True


class Return(Metric):
    """Sum of an episode's rewards over all its steps, mean over episodes."""

    name = "return"
    higher_is_better = True
    losses = ("mse", "l1")
    simulated = True
