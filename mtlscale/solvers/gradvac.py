"""Gradient Vaccine on the Gramian."""

from __future__ import annotations

import torch
from torch import Tensor

from mtlscale.solvers._gramian_common import on_host, restore

LARGEST_TARGET = 1.0 - 1e-6  # no finite multiple of a gradient brings a cosine to 1


def gradvac_weights(gramian: Tensor, targets: Tensor, beta: float | Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights [..., T] of the sum of corrected gradients, and the moved targets.

    Task i meets the others in the order of row i. Where the cosine of its (corrected) gradient with g_j is below
    targets[i, j], a multiple of g_j is added that raises it to the target; targets then follow the cosines by `beta`.
    Zero gradients are skipped. Source: Wang et al., "Gradient Vaccine", ICLR 2021, eq. 3-4.

    Args:
        gramian: The Gramians [..., T, T].
        targets: The target cosines [..., T, T].
        beta: The rate [...] at which targets follow the cosines.
        order: The indices [..., T, T] of the tasks that each task meets.
    """
    matrix, finite = on_host(gramian)
    given_targets, targets, order = targets, targets.to("cpu"), order.to("cpu")

    norms = matrix.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
    tasks = matrix.shape[-1]
    own_index = torch.arange(tasks)
    mix = torch.as_tensor(beta, dtype=torch.float64, device="cpu")[..., None]

    coefficients = torch.eye(tasks, dtype=torch.float64).expand(matrix.shape)
    inner = matrix

    for position in range(tasks):
        other_index = order[..., position]
        column = other_index.unsqueeze(-1)
        product = inner.gather(-1, column).squeeze(-1)
        length = (inner * coefficients).sum(-1).clamp(min=0).sqrt()
        other_length = norms.gather(-1, other_index)

        meets = (other_index != own_index) & (length > 0) & (other_length > 0)
        cosine = (product / torch.where(meets, length * other_length, 1.0)).clamp(-1.0, 1.0)

        target = targets.gather(-1, column).squeeze(-1)
        goal = target.clamp(max=LARGEST_TARGET)
        across = (1.0 - goal**2).sqrt()
        numerator = length * (goal * (1.0 - cosine**2).sqrt() - cosine * across)

        step = torch.where(meets & (cosine < goal), numerator / (torch.where(meets, other_length, 1.0) * across), 0.0)
        coefficients = coefficients.scatter_add(-1, column, step.unsqueeze(-1))
        inner = inner + step.unsqueeze(-1) * matrix.gather(-2, column.expand(matrix.shape))

        moved = torch.where(meets, (1.0 - mix) * target + mix * cosine, target)
        targets = targets.scatter(-1, column, moved.unsqueeze(-1))

    weights = torch.where(finite, coefficients.sum(-2), torch.nan)
    return restore(weights, gramian), targets.to(given_targets)
