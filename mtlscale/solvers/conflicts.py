"""Which modules of a network are updated where task gradients conflict (Yue et al., AAAI 2023)."""

from __future__ import annotations

import torch
from torch import Tensor


def conflicting_pairs(gramians: Tensor) -> Tensor:
    """gramians [..., T, T] -> how many of the pairs i < j have a negative inner product [...], int64."""
    return (gramians < 0).triu(diagonal=1).sum((-2, -1))


def module_mask(gramians: Tensor, prefix: bool = True) -> Tensor:
    """gramians [..., M, T, T] of M modules, input side first -> which of them are updated [..., M], bool.

    Those in which no pair of tasks conflicts; with `prefix`, and in no module nearer the input either.
    """
    free = conflicting_pairs(gramians) == 0
    return free.cumprod(-1).to(torch.bool) if prefix else free


def conflict_mask(grads: list[Tensor]) -> list[bool]:
    """grads: of each module, input side first, the tasks' gradients [T, P_m] -> whether it is updated: no pair of tasks
    has a negative inner product in it or in a module before it."""
    if not grads:
        return []
    wide = [rows.to(torch.float64) for rows in grads]
    found: list[bool] = module_mask(torch.stack([rows @ rows.T for rows in wide])).tolist()
    return found
