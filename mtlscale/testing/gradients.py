"""Task gradients of every rank, conflict and scale: what a balancer may meet."""

from __future__ import annotations

import torch
from torch import Tensor

KINDS = (
    "gaussian",
    "duplicates",
    "opposed",
    "zeros",
    "graded",
    "nearly parallel",
    "agreeing",
    "stationary",
    "all zero",
)


def gradients(kind: str, tasks: int, parameters: int, *, scale: float = 1.0, seed: int = 0) -> Tensor:
    """Return random gradients [T, P] in float64, of one of `KINDS`."""
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(tasks, parameters, dtype=torch.float64, generator=generator)
    other = int(torch.randint(1, tasks, (), generator=generator)) if tasks > 1 else 0
    if kind == "duplicates":
        matrix[other:] = matrix[:1]
    elif kind == "opposed":
        matrix[other:] = -0.5 * matrix[:1]
    elif kind == "zeros":
        matrix[other:] = 0.0
    elif kind == "graded":
        matrix *= torch.logspace(-6, 0, tasks, dtype=torch.float64).unsqueeze(-1)
    elif kind == "nearly parallel":
        matrix = matrix[:1] + 1e-3 * matrix
    elif kind == "agreeing":
        matrix = matrix.abs()
    elif kind == "stationary":
        matrix[-1] = -matrix[:-1].sum(0)
    elif kind == "all zero":
        matrix *= 0.0
    return scale * matrix


def losses_of(jacobian: Tensor, step: int = 0) -> Tensor:
    """Return positive losses [..., T] as large as the gradients [..., T, P]; in later steps those of long ones rise."""
    lengths: Tensor = jacobian.norm(dim=-1)
    largest = lengths.amax(-1, keepdim=True)
    return (1.0 + 0.3 * step) * lengths + largest + 1e-9


def permutation(tasks: int) -> Tensor:
    """Return a fixed permutation [T] without symmetries of its own."""
    return torch.randperm(tasks, generator=torch.Generator().manual_seed(tasks))
