"""Masks of the modules that are updated where task gradients conflict (Yue et al., AAAI 2023)."""

from __future__ import annotations

import torch
from torch import Tensor


def conflicting_pairs(gramians: Tensor) -> Tensor:
    """Count the pairs i < j with a negative inner product: gramians [..., T, T] -> [...], int64."""
    return (gramians < 0).triu(diagonal=1).sum((-2, -1))


def module_mask(gramians: Tensor, prefix: bool = True) -> Tensor:
    """Return the modules that are updated [..., M], bool: those in which no pair of tasks conflicts.

    Args:
        gramians: The Gramians [..., M, T, T] of M modules, input side first.
        prefix: Require the same of every module nearer the input.
    """
    free = conflicting_pairs(gramians) == 0
    return free.cumprod(-1).to(torch.bool) if prefix else free


def conflict_mask(grads: list[Tensor]) -> list[bool]:
    """Return whether each module is updated.

    It is where no pair of tasks has a negative inner product in it or in a module before it.

    Args:
        grads: The tasks' gradients [T, P_m] of each module, input side first.
    """
    if not grads:
        return []
    wide = [rows.to(torch.float64) for rows in grads]
    mask: list[bool] = module_mask(torch.stack([rows @ rows.T for rows in wide])).tolist()
    return mask
