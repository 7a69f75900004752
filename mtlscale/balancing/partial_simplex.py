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


def shares(weights: Tensor) -> Tensor:
    """Return weights [..., S] over their sum: exactly as they are for all tasks' weights, equal where all are zero."""
    mass = _mass(weights)
    positive = mass > 0
    return torch.where(positive, weights / torch.where(positive, mass, 1.0), 1.0 / weights.shape[-1])


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
    mass = _mass(weights)
    positive = mass > 0
    moved = torch.where(positive, (weights + change) / torch.where(positive, mass, 1.0), 0.0 * change)
    point = project_simplex(moved)
    return point, mass * point


def _mass(weights: Tensor) -> Tensor:
    mass = weights.sum(-1, keepdim=True)
    return torch.where((mass - 1.0).abs() < _ROUNDING, 1.0, mass)
