"""CAGrad: the best worst-case direction in a ball around the average gradient (Liu et al., NeurIPS 2021)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import VANISHED, Array, Solution, factor, over_batch, scaled, uniform
from mtlscale.solvers.linear_plus_norm import linear_plus_norm_of


def cagrad_weights(gramian: Tensor, c: float | Tensor, *, rescale: int = 0) -> Tensor:
    """Return the weights [..., T] of CAGrad's direction (docs/methods.md).

    Args:
        gramian: The Gramians [..., T, T].
        c: The radius of the ball over the average gradient's length, [...] in [0, 1).
        rescale: 0 none; 1 divides by 1 + c², 2 by 1 + c, as the authors' code does (which also multiplies by T: not
            here).
    """
    return solve_cagrad(gramian, c, rescale=rescale).weights


def solve_cagrad(gramian: Tensor, c: float | Tensor, *, rescale: int = 0) -> Solution:
    """Return `cagrad_weights` with, per Gramian, whether the inner problem's duality gap is closed."""
    return Solution(*over_batch(lambda matrix, c: _solve(matrix, float(c), rescale), gramian, c))


def _solve(gramian: Array, c: float, rescale: int) -> tuple[Array, bool]:
    rows = factor(scaled(gramian)[0])
    equal = uniform(len(rows))
    divisor = (1.0, 1.0 + c**2, 1.0 + c)[rescale]

    average = rows.T @ equal
    radius = c * float(np.linalg.norm(average))
    if radius <= VANISHED * c * np.linalg.norm(rows, axis=1).mean():
        return equal / divisor, True

    worst, converged = linear_plus_norm_of(rows, rows @ average, radius, independent=rows.shape[1] == len(rows))
    length = float(np.linalg.norm(rows.T @ worst))
    if length <= VANISHED * (worst @ np.linalg.norm(rows, axis=1)):
        return equal / divisor, converged

    return (equal + radius / length * worst) / divisor, converged
