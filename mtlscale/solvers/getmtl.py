"""GetMTL: CAGrad's problem on gradients rescaled by MGDA, around the raw average gradient (Chai et al., ACL 2023)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    DOUBLE,
    FLAT,
    VANISHED,
    Array,
    factor,
    hidden_part,
    length_bounds,
    over_batch,
    scaled,
    shrinkage,
    uniform,
)
from mtlscale.solvers.linear_and_norm import best_in_ball
from mtlscale.solvers.min_norm import min_norm_of

LARGEST_KAPPA = 0.9  # at κ = ε‖g₀‖ >= 1 the feasible set is unbounded (docs/methods.md#getmtl)


class GetMTLSolution(NamedTuple):
    """The weights [..., T]; [...] whether both problems were solved; [...] whether κ = ε‖g₀‖ was cut to 0.9."""

    weights: Tensor
    converged: Tensor
    clamped: Tensor


def getmtl_weights(
    gramian: Tensor,
    eps: float | Tensor,
    *,
    relative: bool = False,
    exact: bool = False,
    precision: float | Tensor = DOUBLE,
) -> Tensor:
    """Return the weights [..., T] on the raw gradients of GetMTL's direction d*.

    Args:
        gramian: The Gramians [..., T, T].
        eps: The ε [...] in (0, 1].
        relative: Take κ = eps instead of κ = eps ‖g₀‖.
        exact: Solve problem (A) of docs/methods.md, the paper's eq. 10 as printed, instead of (B), its eq. 13-14.
        precision: The eps [...] of the type the gradients were computed in: the direction keeps its constraint whatever
            rounding hides of the Gramian.
    """
    return solve_getmtl(gramian, eps, relative=relative, exact=exact, precision=precision).weights


def solve_getmtl(
    gramian: Tensor,
    eps: float | Tensor,
    *,
    relative: bool = False,
    exact: bool = False,
    precision: float | Tensor = DOUBLE,
) -> GetMTLSolution:
    """Return `getmtl_weights` with, per Gramian, whether it was solved and whether κ had to be cut."""
    return GetMTLSolution(
        *over_batch(
            lambda matrix, eps, hidden: _solve(matrix, float(eps), float(hidden), relative, exact),
            gramian,
            eps,
            hidden_part(gramian, precision),
            flags=2,
        )
    )


def _solve(gramian: Array, eps: float, hidden: float, relative: bool, exact: bool) -> tuple[Array, bool, bool]:
    matrix, scale = scaled(gramian)
    rows = factor(matrix, max(FLAT, hidden))
    equal = uniform(len(rows))
    norm = float(length_bounds(equal, matrix, hidden)[0])

    requested_kappa = eps if relative else eps * norm * np.sqrt(scale)
    kappa = min(requested_kappa, LARGEST_KAPPA)
    clamped = requested_kappa > LARGEST_KAPPA

    if norm <= VANISHED * np.linalg.norm(rows, axis=1).mean():
        return equal, True, clamped

    shares, balanced = min_norm_of(rows)
    support = shares > 0.0
    rescaled = shares[support, None] * rows[support]
    average = rows.T @ equal
    remainder = 1.0 - kappa**2

    if exact:
        # Q^½ = I + (1/√(1-κ²) - 1) e eᵀ turns (A)'s ellipsoid into a ball.
        along = average / norm
        stretched = rescaled + (remainder**-0.5 - 1.0) * np.outer(rescaled @ along, along)
        linear, radius = rescaled @ average / remainder, kappa * norm / np.sqrt(remainder)
    else:
        stretched, linear, radius = rescaled, rescaled @ average, kappa * norm

    independent = rows.shape[1] == len(rows)
    worst, solved = best_in_ball(stretched, linear, radius, hidden, independent=independent)
    pull = np.zeros_like(shares)
    pull[support] = shares[support] * worst
    converged = balanced and solved
    if exact:
        lean = float(average @ (rows.T @ pull)) / norm**2 * equal  # its part along the average
        size = shrinkage(pull + (remainder**-0.5 - 1.0) * lean, radius, matrix, hidden)
        return equal / remainder + size * (pull + kappa**2 / remainder * lean), converged, clamped
    return (equal + shrinkage(pull, radius, matrix, hidden) * pull) / remainder, converged, clamped
