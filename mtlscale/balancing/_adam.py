"""Adam on a vector kept in a balancer's state, for methods whose authors learn their weights with it."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.balancing._base import State

PER_TASK = ("adam_mean", "adam_square")


def start(tasks: int, batch: tuple[int, ...]) -> State:
    """The moments [batch, T] and the step counter [batch]."""
    zeros = torch.zeros(*batch, tasks, dtype=torch.float64)
    return {"adam_mean": zeros, "adam_square": zeros.clone(), "adam_step": torch.zeros(batch, dtype=torch.int64)}


def step(state: State, slope: Tensor, lr: float, active: Tensor) -> tuple[Tensor, State]:
    """slope [..., T], active [...] (bool) -> what to add to the vector, and the state after: torch.optim.Adam's rule
    and defaults where active, nothing elsewhere."""
    count = state["adam_step"] + active.to(state["adam_step"])
    where = active.unsqueeze(-1)
    slope = torch.where(where, slope, 0.0)
    mean = torch.where(where, 0.9 * state["adam_mean"] + 0.1 * slope, state["adam_mean"])
    square = torch.where(where, 0.999 * state["adam_square"] + 0.001 * slope**2, state["adam_square"])
    age = count.clamp(min=1).unsqueeze(-1).to(slope)
    unbiased_mean = mean / (1.0 - 0.9**age)
    unbiased_square = square / (1.0 - 0.999**age)
    change = torch.where(where, -lr * unbiased_mean / (unbiased_square.sqrt() + 1e-8), 0.0)
    return change, {**state, "adam_mean": mean, "adam_square": square, "adam_step": count}
