"""The entries of a balancer's state that the training loop sets before each call, at their initial values."""

from __future__ import annotations

import torch

from mtlscale.balancing.contract import State


def precision(batch: tuple[int, ...]) -> State:
    """Return the entry `precision`, float64 [batch]: eps of the gradients' type, at first float64's."""
    return {"precision": torch.full(batch, torch.finfo(torch.float64).eps, dtype=torch.float64)}


def task_scale(tasks: int, batch: tuple[int, ...]) -> State:
    """Return the entry `task_scale`, float64 [batch, T]: the factors that multiplied the losses, at first ones."""
    return {"task_scale": torch.ones(*batch, tasks, dtype=torch.float64)}
