"""Simplex weights of which only some tasks' move in a step: together these tasks keep the share that they had.

Otherwise every step without labels of a task would raise the other tasks' weights relative to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.solvers import project_simplex

_ROUNDING = 1e-9  # a sum this close to 1 counts as 1


def log_of(log_weights: Tensor) -> Tensor:
    """Return the log [..., 1] of the weights' sum from log-weights [..., S]; exactly 0 for all tasks' weights."""
    mass = torch.logsumexp(log_weights, dim=-1, keepdim=True)
    return torch.where(mass.abs() < _ROUNDING, 0.0, mass)


def project(weights: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """Move weights on the simplex and keep their sum.

    Args:
        weights: Weights [..., S] before the change.
        change: What to add to the weights, [..., S].

    Returns:
        The point [..., S] of the simplex nearest to (weights + change) / (sum of the weights before the change); equal
        shares if the weights are all zero.
        Second, the weights to keep: these shares times that sum.
    """
    mass = weights.sum(-1, keepdim=True)
    mass = torch.where((mass - 1.0).abs() < _ROUNDING, 1.0, mass)
    positive = mass > 0
    shares = project_simplex(torch.where(positive, (weights + change) / torch.where(positive, mass, 1.0), 0.0 * change))
    return shares, mass * shares
