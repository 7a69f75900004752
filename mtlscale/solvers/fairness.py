"""Fixed points K w = w^(-1/α): Nash-MTL's bargaining solution (α = 1) and FairGrad's α-fair weights."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    CERTIFIED,
    DOUBLE,
    Array,
    Solution,
    cosines,
    factor,
    hidden_part,
    over_batch,
    scaled,
    uniform,
)
from mtlscale.solvers.min_norm import min_norm_of

RIDGE = 1e-10  # added to the cosine matrix where the gradients' hull holds 0 and no fixed point exists


def nash_weights(gramian: Tensor, *, precision: float | Tensor = DOUBLE) -> Solution:
    """Return the w > 0 [..., T] with K w = 1/w, so that wᵀKw = T; see `fair_weights`."""
    return fair_weights(gramian, 1.0, precision=precision)


def fair_weights(
    gramian: Tensor,
    alpha: float | Tensor,
    *,
    precision: float | Tensor = DOUBLE,
    factors: Tensor | None = None,
) -> Solution:
    """Return the w > 0 [..., T] with (K w)_t = f_t w_t^(-1/α), f = 1 by default.

    It minimises the strictly convex ½ wᵀKw + Σ ψ(w_t), ψ' = -f w^(-1/α), by damped Newton steps. Tasks with a zero
    gradient get weight 0. At a Pareto-stationary point no finite w exists: the answer then is that of the Gramian with
    a small ridge, whose direction is short, flagged as not converged. All gradients zero: equal weights.

    Args:
        gramian: The Gramians [..., T, T].
        alpha: The fairness [...] > 0.
        precision: The eps [...] of the type the gradients were computed in; a hull of unit gradients that comes within
            √(T times it) of 0 holds 0.
        factors: The f > 0 [..., T].
    """
    vector = torch.ones(gramian.shape[-1], dtype=torch.float64) if factors is None else factors
    hidden = hidden_part(gramian, precision)
    return Solution(*over_batch(_solve, gramian, alpha, precision, hidden, vectors=(vector,)))


def _solve(gramian: Array, factors: Array, alpha: Array, precision: Array, hidden: Array) -> tuple[Array, bool]:
    matrix, scale = scaled(gramian)
    power = 1.0 / float(alpha)
    norms = np.sqrt(matrix.diagonal().clip(min=0.0))
    live = norms > 1e-150
    if not live.any():
        return uniform(len(norms)), True

    # In units of each gradient's norm, y = norms w solves angles y = pull y^(-power).
    angles = cosines(matrix, norms, live)
    norms = norms[live]
    pull = factors[live] * norms ** (power - 1.0)

    shares, _ = min_norm_of(factor(angles))
    ridge = max(RIDGE, len(gramian) * float(precision), float(hidden))
    stationary = bool(shares @ angles @ shares <= ridge)
    # Lengths are no longer than those of the ridged cosines, whatever rounding hides.
    angles = angles + (ridge if stationary else float(hidden)) * np.eye(len(norms))

    point, converged = _newton(angles, pull, power)
    weights = np.zeros(len(live))
    weights[live] = point / norms * scale ** (-1.0 / (1.0 + power))
    return weights, converged and not stationary


def _newton(angles: Array, pull: Array, power: float) -> tuple[Array, bool]:
    """Return the y > 0 with angles y = pull y^(-power), and whether it was reached."""
    point = pull ** (1.0 / (1.0 + power))
    value = _objective(angles, pull, power, point)
    sizes = np.abs(angles)

    for _ in range(100):
        forces = pull * point**-power
        slope = angles @ point - forces
        # Against the terms that were added up, not their sum: rounding allows no more where they cancel.
        if (np.abs(slope) <= CERTIFIED * (sizes @ point + forces)).all():
            return point, True

        # The Hessian scaled to a unit diagonal: as well conditioned as the cosines allow, whatever the spread of y.
        units = 1.0 / np.sqrt(angles.diagonal() + power * forces / point)
        hessian = units[:, None] * angles * units + np.diag(power * forces / point * units**2)
        relative = -units * np.linalg.solve(hessian, units * slope) / point

        step = 1.0
        for _ in range(60):
            # Entries that grow take the step in y, those that shrink in y^(-power), where their equation is nearly
            # linear: so they stay positive, and fall by many orders of magnitude at once where they have to.
            change = step * relative
            moved = point * np.where(change > 0.0, 1.0 + change, (1.0 - power * change.clip(max=0.0)) ** (-1.0 / power))
            reached = _objective(angles, pull, power, moved)
            if reached <= value + 1e-4 * step * float(slope @ (point * relative)) + 1e-14 * abs(value):
                break
            step *= 0.5

        point, value = moved, reached

    return point, False


def _objective(angles: Array, pull: Array, power: float, point: Array) -> float:
    barrier = -np.log(point) if power == 1.0 else point ** (1.0 - power) / (power - 1.0)
    return float(0.5 * point @ angles @ point + pull @ barrier)
