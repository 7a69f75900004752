"""Adam on a vector in a balancer's state, for methods whose authors learn their weights with it."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.balancing.contract import State

PER_TASK = ("adam_mean", "adam_square")


def start(tasks: int, batch: tuple[int, ...]) -> State:
    """Return the moments [batch, T] and the step counter [batch], all zero."""
    zeros = torch.zeros(*batch, tasks, dtype=torch.float64)
    return {"adam_mean": zeros, "adam_square": zeros.clone(), "adam_step": torch.zeros(batch, dtype=torch.int64)}


def step(state: State, slope: Tensor, lr: float, active: Tensor) -> tuple[Tensor, State]:
    """Take one step of Adam, with the rule and the defaults of `torch.optim.Adam`.

    Args:
        state: A balancer's state with the entries of `start`.
        slope: Gradient of the vector, [..., T].
        lr: Learning rate.
        active: Where to take the step, bool [...]; elsewhere the vector and the moments stay as they are.

    Returns:
        The change to add to the vector [..., T], and the next state.
    """
    count = state["adam_step"] + active.to(state["adam_step"])
    mask = active.unsqueeze(-1)
    slope = torch.where(mask, slope, 0.0)
    mean = torch.where(mask, 0.9 * state["adam_mean"] + 0.1 * slope, state["adam_mean"])
    square = torch.where(mask, 0.999 * state["adam_square"] + 0.001 * slope**2, state["adam_square"])

    age = count.clamp(min=1).unsqueeze(-1).to(slope)
    unbiased_mean = mean / (1.0 - 0.9**age)
    unbiased_square = square / (1.0 - 0.999**age)

    change = torch.where(mask, -lr * unbiased_mean / (unbiased_square.sqrt() + 1e-8), 0.0)
    return change, {**state, "adam_mean": mean, "adam_square": square, "adam_step": count}
