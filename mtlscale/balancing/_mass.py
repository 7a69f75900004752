"""Weights on the simplex of which some tasks' are moved alone: together these keep the share they had.

Otherwise every step without labels of a task would raise the others' weights against its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.solvers import project_simplex

_ROUNDING = 1e-9  # a sum this close to 1 is 1


def log_of(log_weights: Tensor) -> Tensor:
    """log_weights [..., S] -> the logarithm of their sum [..., 1]; exactly 0 for all tasks' weights."""
    mass = torch.logsumexp(log_weights, dim=-1, keepdim=True)
    return torch.where(mass.abs() < _ROUNDING, 0.0, mass)


def project(weights: Tensor, change: Tensor) -> tuple[Tensor, Tensor]:
    """weights [..., S] before a change [..., S] -> shares [..., S] of the simplex nearest to (weights + change) / their
    sum before it, and these times that sum: the weights to keep. Equal shares where the weights are all zero."""
    mass = weights.sum(-1, keepdim=True)
    mass = torch.where((mass - 1.0).abs() < _ROUNDING, 1.0, mass)
    there = mass > 0
    shares = project_simplex(torch.where(there, (weights + change) / torch.where(there, mass, 1.0), 0.0 * change))
    return shares, mass * shares
