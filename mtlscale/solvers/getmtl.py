"""GetMTL: CAGrad's problem on gradients rescaled by MGDA, around the raw average gradient (Chai et al., ACL 2023)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import VANISHED, Array, factor, over_batch, scaled, uniform
from mtlscale.solvers.linear_plus_norm import linear_plus_norm_of
from mtlscale.solvers.min_norm import min_norm_of

LARGEST_KAPPA = 0.9  # at κ = ε‖g₀‖ >= 1 the feasible set is unbounded (docs/methods.md#getmtl)


class GetMTLSolution(NamedTuple):
    """The weights [..., T]; [...] whether both problems were solved; [...] whether κ = ε‖g₀‖ was cut to 0.9."""

    weights: Tensor
    converged: Tensor
    clamped: Tensor


def getmtl_weights(gramian: Tensor, eps: float | Tensor, *, relative: bool = False, exact: bool = False) -> Tensor:
    """Return the weights [..., T] on the raw gradients of GetMTL's direction d*.

    Args:
        gramian: The Gramians [..., T, T].
        eps: The ε [...] in (0, 1].
        relative: Take κ = eps instead of κ = eps ‖g₀‖.
        exact: Solve problem (A) of docs/methods.md, the paper's eq. 10 as printed, instead of (B), its eq. 13-14.
    """
    return solve_getmtl(gramian, eps, relative=relative, exact=exact).weights


def solve_getmtl(
    gramian: Tensor, eps: float | Tensor, *, relative: bool = False, exact: bool = False
) -> GetMTLSolution:
    """Return `getmtl_weights` with, per Gramian, whether it was solved and whether κ had to be cut."""
    return GetMTLSolution(
        *over_batch(lambda matrix, eps: _solve(matrix, float(eps), relative, exact), gramian, eps, flags=2)
    )


def _solve(gramian: Array, eps: float, relative: bool, exact: bool) -> tuple[Array, bool, bool]:
    matrix, scale = scaled(gramian)
    rows = factor(matrix)
    equal = uniform(len(rows))
    average = rows.T @ equal
    norm = float(np.linalg.norm(average))

    requested_kappa = eps if relative else eps * norm * np.sqrt(scale)
    kappa = min(requested_kappa, LARGEST_KAPPA)
    clamped = requested_kappa > LARGEST_KAPPA

    if norm <= VANISHED * np.linalg.norm(rows, axis=1).mean():
        return equal, True, clamped

    shares, balanced = min_norm_of(rows)
    support = shares > 0.0
    rescaled = shares[support, None] * rows[support]
    remainder = 1.0 - kappa**2
    along = average / norm

    if exact:
        # Q^½ = I + (1/√(1-κ²) - 1) e eᵀ turns (A)'s ellipsoid into a ball.
        stretched = rescaled + (remainder**-0.5 - 1.0) * np.outer(rescaled @ along, along)
        linear, radius = rescaled @ average / remainder, kappa * norm / np.sqrt(remainder)
    else:
        stretched, linear, radius = rescaled, rescaled @ average, kappa * norm

    worst, solved = linear_plus_norm_of(stretched, linear, radius, independent=rows.shape[1] == len(rows))
    length = float(np.linalg.norm(stretched.T @ worst))
    converged = balanced and solved
    if length <= VANISHED * (worst @ np.linalg.norm(stretched, axis=1)):
        return equal / remainder, converged, clamped

    pull = np.zeros_like(shares)
    pull[support] = shares[support] * worst
    if exact:
        lean = kappa**2 / remainder * float(along @ (rescaled.T @ worst)) / norm
        return equal / remainder + radius / length * (pull + lean * equal), converged, clamped
    return (equal + radius / length * pull) / remainder, converged, clamped
