"""EPO and PMGDA: steps towards the point of a Pareto front that a preference asks for, as linear programs of size T."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linprog
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    DOUBLE,
    FLAT,
    Array,
    Solution,
    factor,
    hidden_part,
    least_norm,
    length_bounds,
    over_batch,
    scaled,
)
from mtlscale.solvers.min_norm import min_norm_of

_LEAST = 1e-6  # share of a task in EPO's preference: with 0 every direction is as good
_TINY = float(np.finfo(np.float64).eps)


def epo_weights(gramian: Tensor, losses: Tensor, preference: Tensor, tolerance: float | Tensor) -> Solution:
    """Return the simplex weights [..., T] of exact Pareto optimal search.

    With the shares p_t of r_t ℓ_t in their sum, μ = Σ p_t log(T p_t) measures how unequal the products are, and
    a_t = r_t (log(T p_t) - μ) is the direction of the losses that makes them equal. While μ > ε the weights maximise
    ⟨Kβ, a⟩, and no loss may rise but those that have to for it; then they maximise the fall of all losses, and none may
    rise.
    Source: Mahapatra & Rajan, ICML 2020, section 4, in the form of the authors' code. A program without a solution
    gives the preference, flagged as not converged.

    Args:
        gramian: The Gramians [..., T, T].
        losses: The losses ℓ [..., T], not negative.
        preference: The preferences r [..., T], on the simplex.
        tolerance: ε [...].
    """
    return Solution(*over_batch(_epo, gramian, tolerance, vectors=(losses, preference)))


def _epo(gramian: Array, losses: Array, preference: Array, tolerance: Array) -> tuple[Array, bool]:
    matrix, scale = scaled(gramian)
    preference = preference.clip(min=_LEAST)
    products = preference * losses
    if scale == 0.0 or not products.sum() > 0.0:
        return preference, True

    parts = products / products.sum()
    logs = np.log(len(parts) * parts.clip(min=_TINY))
    inequality = float(parts @ logs)
    moves = matrix @ (preference * (logs - inequality))

    if inequality > tolerance:
        bounds, bound = matrix, np.zeros(len(parts))
        rising = moves > 0.0
        if rising.any():
            largest = products == products.max()
            bound = np.where(largest, 0.0, moves)
            bounds, bound = matrix[largest | ~rising], bound[largest | ~rising]
        weights = _program(moves / max(float(np.abs(moves).max()), _TINY), bounds, bound)
    else:
        bounds = np.vstack([matrix, moves])
        bound = np.append(np.zeros(len(parts)), min(float(moves.max()), 0.0))
        weights = _program(matrix.sum(axis=0), bounds, bound)
    return (preference, False) if weights is None else (_shortest(weights, factor(matrix)), True)


def pmgda_weights(
    gramian: Tensor,
    losses: Tensor,
    ray: Tensor,
    tolerance: float | Tensor,
    sigma: float | Tensor,
    *,
    precision: float | Tensor = DOUBLE,
) -> Solution:
    """Return the weights [..., T] of a step of MGDA with a preference.

    h is the distance of the losses to the ray. Where h ≤ ε the weights are MGDA's. Else the update d is a convex
    combination of the unit gradients of all tasks and of h which maximises the least ⟨g_t, d⟩ under
    ⟨∇h, d⟩ ≥ σ ‖∇h‖.
    Source: Zhang, Lin & Zhang, "PMGDA", 2024, equations 18 and 20. A program without a solution gives the descent of h
    alone, flagged as not converged.

    Args:
        gramian: The Gramians [..., T, T].
        losses: The losses ℓ [..., T].
        ray: Unit vectors [..., T], the ray's direction in the space of losses.
        tolerance: ε [...].
        sigma: σ [...] in [0, 1].
        precision: The eps [...] of the type the gradients were computed in: a correction is no longer than a unit
            gradient whatever rounding hides of the Gramian.
    """
    hidden = hidden_part(gramian, precision)
    return Solution(*over_batch(_pmgda, gramian, tolerance, sigma, hidden, vectors=(losses, ray)))


def _pmgda(
    gramian: Array, losses: Array, ray: Array, tolerance: Array, sigma: Array, hidden: Array
) -> tuple[Array, bool]:
    aside = losses - (losses @ ray) * ray
    distance = float(np.linalg.norm(aside))
    matrix, scale = scaled(gramian)
    rows = factor(matrix, max(FLAT, float(hidden)))
    if distance <= tolerance or scale == 0.0:
        return min_norm_of(rows)

    slope = aside / distance  # of h in the losses
    gradients = np.vstack([rows, slope @ rows])
    lengths = np.linalg.norm(gradients, axis=1)
    lengths[-1] = length_bounds(slope, matrix, float(hidden))[1]
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > _TINY)
    # In units of the shortest gradient, which the least descent depends on most.
    unit = lengths[lengths > _TINY].min()
    inner = gradients @ (inverse[:, None] * gradients).T / unit

    # Over the shares and, last, the least descent of a task.
    bounds = np.hstack([inner, np.append(-np.ones(len(losses)), 0.0)[:, None]])
    bound = np.append(np.zeros(len(losses)), float(sigma) * lengths[-1] / unit * (1.0 - 1e-9))
    answer = _program(np.append(np.zeros(len(losses) + 1), 1.0), bounds, bound, free=1)
    fall_back = np.append(np.zeros(len(losses)), 1.0)
    shares = fall_back if answer is None else _shortest(answer[:-1], inverse[:, None] * gradients)

    weights = shares[:-1] * inverse[:-1] + shares[-1] * inverse[-1] * slope
    return weights / np.sqrt(scale), answer is not None


def _program(gain: Array, bounds: Array, bound: Array, free: int = 0) -> Array | None:
    """Return x, on the simplex plus `free` unbounded numbers, maximising gain · x under bounds x >= bound, or None."""
    size = len(gain) - free
    answer = linprog(
        -gain,
        A_ub=-bounds,
        b_ub=-bound,
        A_eq=np.append(np.ones(size), np.zeros(free))[None],
        b_eq=[1.0],
        bounds=[(0.0, None)] * size + [(None, None)] * free,
        method="highs",
    )
    if not answer.success:
        return None
    solution: Array = np.asarray(answer.x)
    solution[:size] = solution[:size].clip(min=0.0)
    return solution


def _shortest(point: Array, rows: Array) -> Array:
    """Return, of the points of the simplex with the same rowsᵀx, the one of least norm: it is unique."""
    ones = np.ones(len(point))
    return least_norm(point, rows, ones > 0.0, ones)
