"""CAGrad: the best worst-case direction in a ball around the average gradient (Liu et al., NeurIPS 2021)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    DOUBLE,
    FLAT,
    VANISHED,
    Array,
    Solution,
    factor,
    hidden_part,
    length_bounds,
    over_batch,
    scaled,
    shrinkage,
    uniform,
)
from mtlscale.solvers.linear_and_norm import best_in_ball


def cagrad_weights(
    gramian: Tensor, c: float | Tensor, *, rescale: int = 0, precision: float | Tensor = DOUBLE
) -> Tensor:
    """Return the weights [..., T] of CAGrad's direction (docs/methods.md).

    Args:
        gramian: The Gramians [..., T, T].
        c: The radius of the ball over the average gradient's length, [...] in [0, 1).
        rescale: 0 none; 1 divides by 1 + c², 2 by 1 + c, as the authors' code does (which also multiplies by T: not
            here).
        precision: The eps [...] of the type the gradients were computed in: the direction stays in the ball whatever
            rounding hides of the Gramian.
    """
    return solve_cagrad(gramian, c, rescale=rescale, precision=precision).weights


def solve_cagrad(
    gramian: Tensor, c: float | Tensor, *, rescale: int = 0, precision: float | Tensor = DOUBLE
) -> Solution:
    """Return `cagrad_weights` with, per Gramian, whether the inner problem's duality gap is closed."""
    hidden = hidden_part(gramian, precision)
    return Solution(
        *over_batch(lambda matrix, c, hidden: _solve(matrix, float(c), float(hidden), rescale), gramian, c, hidden)
    )


def _solve(gramian: Array, c: float, hidden: float, rescale: int) -> tuple[Array, bool]:
    matrix, _ = scaled(gramian)
    rows = factor(matrix, max(FLAT, hidden))
    equal = uniform(len(rows))
    divisor = (1.0, 1.0 + c**2, 1.0 + c)[rescale]

    least, _ = length_bounds(equal, matrix, hidden)
    radius = c * float(least)
    if radius <= VANISHED * c * np.linalg.norm(rows, axis=1).mean():
        return equal / divisor, True

    linear = rows @ (rows.T @ equal)
    pull, converged = best_in_ball(rows, linear, radius, hidden, independent=rows.shape[1] == len(rows))
    return (equal + shrinkage(pull, radius, matrix, hidden) * pull) / divisor, converged
