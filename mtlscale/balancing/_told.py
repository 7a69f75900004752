"""The entries of a balancer's state that whoever trains it sets before each call, and their values until then."""

from __future__ import annotations

import torch

from mtlscale.balancing._base import State


def precision(batch: tuple[int, ...]) -> State:
    """eps of the type in which the gradients were computed, float64 [batch]: float64's."""
    return {"precision": torch.full(batch, torch.finfo(torch.float64).eps, dtype=torch.float64)}


def task_scale(tasks: int, batch: tuple[int, ...]) -> State:
    """What the losses were multiplied by before they were handed over, float64 [batch, T]: ones."""
    return {"task_scale": torch.ones(*batch, tasks, dtype=torch.float64)}
