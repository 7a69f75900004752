"""Gradient surgery (PCGrad, Yu et al., NeurIPS 2020): projections of conflicting gradients, on the Gramian."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.solvers._gramian_common import on_host, restore


def pcgrad_weights(gramian: Tensor, order: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
    """Return the weights [..., T] of the sum of projected gradients (ones where nothing conflicts).

    Source: Yu et al., Algorithm 1.

    Args:
        gramian: The Gramians [..., T, T].
        order: A permutation [T] for every task, or [..., T, T] whose row i is task i's; None draws a permutation per
            task from `generator`.
    """
    tasks = gramian.shape[-1]
    if order is None:
        order = torch.rand(gramian.shape, generator=generator, dtype=torch.float64).argsort(-1)

    matrix, finite = on_host(gramian)
    order = torch.as_tensor(order, device="cpu").expand(matrix.shape)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1)
    own_index = torch.arange(tasks)

    # Row i of `inner` holds the products of task i's current vector with every original gradient. All tasks take their
    # k-th projection at once: they do not see each other.
    weights = torch.ones_like(diagonal)
    inner = matrix.clone()

    for position in range(tasks):
        other_index = order[..., position]
        product = inner.gather(-1, other_index.unsqueeze(-1)).squeeze(-1)
        square = diagonal.gather(-1, other_index)
        conflict = (product < 0) & (other_index != own_index) & (square > 0)
        step = torch.where(conflict, -product / torch.where(square > 0, square, 1.0), 0.0)
        weights = weights.scatter_add(-1, other_index, step)
        inner = inner + step.unsqueeze(-1) * matrix.gather(-2, other_index.unsqueeze(-1).expand(matrix.shape))

    return restore(torch.where(finite, weights, torch.nan), gramian)
