"""The solver of PCD, a least-distance problem with a main task."""

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
    least_squares,
    length_bounds,
    over_batch,
    scaled,
    uniform,
)

_INFEASIBLE = 1e-10  # a remainder below it: the least-distance problem has no solution shorter than 1e5


def primary_weights(
    gramian: Tensor, sizes: Tensor, primary: Tensor, tau: float | Tensor, *, precision: float | Tensor = DOUBLE
) -> Solution:
    """Return the weights [..., T] of the update nearest to the main task's gradient under gains for the other tasks.

    With g̃_t = g_t / sizes_t, d̃ minimises ‖d̃ - g̃_1‖ under ⟨g̃_j, d̃⟩ >= τ ‖g̃_j‖² for every other task j; the update
    is d̃ as long as g_1. A main gradient of zero gives weights of 0, constraints without a solution the main gradient,
    flagged as not converged, no main task equal weights. It is a least-distance problem, solved by non-negative least
    squares (Lawson & Hanson, 1974, chapter 23).

    Args:
        gramian: The Gramians [..., T, T].
        sizes: What each gradient is divided by [..., T], positive.
        primary: 1 for the main task, 0 for the others [..., T].
        tau: The part τ [...] of each other task's own descent.
        precision: The eps [...] of the type the gradients were computed in: the update is no longer than the main
            gradient whatever rounding hides of the Gramian.
    """
    hidden = hidden_part(gramian, precision)
    return Solution(*over_batch(_solve, gramian, tau, hidden, vectors=(sizes, primary)))


def _solve(gramian: Array, sizes: Array, primary: Array, tau: Array, hidden: Array) -> tuple[Array, bool]:
    if not primary.any():
        return uniform(len(gramian)), True
    main = int(primary.argmax())
    length = float(np.sqrt(max(gramian[main, main], 0.0)))
    if not length > 0.0:
        return np.zeros(len(gramian)), True

    inverse = 1.0 / sizes
    matrix, scale = scaled(inverse[:, None] * gramian * inverse)
    rows = factor(matrix, max(FLAT, float(hidden)))
    lengths = np.linalg.norm(rows, axis=1)
    moving = lengths > 0.0
    moving[main] = False

    weights, converged = np.zeros(len(gramian)), True
    weights[main] = 1.0
    if moving.any():
        units = rows[moving] / lengths[moving, None]
        shares, converged = _shortest(units, float(tau) * lengths[moving] - units @ rows[main])
        weights[moving] = shares / lengths[moving]

    if np.linalg.norm(rows.T @ weights) <= VANISHED * float(np.abs(weights) @ lengths):
        return np.zeros(len(gramian)), converged
    _, longest = length_bounds(weights, matrix, float(hidden))
    return weights * inverse * length / (float(longest) * np.sqrt(scale)), converged


def _shortest(units: Array, bounds: Array) -> tuple[Array, bool]:
    """Return x >= 0 [n]: unitsᵀx is the shortest y with units y >= bounds; zeros and False if there is none."""
    if bounds.max() <= 0.0:
        return np.zeros(len(bounds)), True
    largest = np.abs(bounds).max()
    bounds = bounds / largest

    try:
        dual = least_squares(np.vstack([units.T, bounds]), np.append(np.zeros(units.shape[1]), 1.0))
    except RuntimeError:  # the iteration limit
        return np.zeros(len(bounds)), False
    remainder = 1.0 - bounds @ dual
    if remainder <= _INFEASIBLE:
        return np.zeros(len(bounds)), False
    return largest * dual / remainder, True
