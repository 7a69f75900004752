"""UPGrad and DualProj: projections onto the directions that no task loses by, of each gradient or of their mean."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    CERTIFIED,
    DOUBLE,
    FLAT,
    VANISHED,
    Array,
    Solution,
    factor,
    hidden_part,
    least_norm,
    least_squares,
    length_bounds,
    over_batch,
    scaled,
    shrinkage,
    uniform,
)

RIDGE = 1e-9  # least ridge on the weights of unit gradients: moves a projection by half of that at most


def upgrad_weights(gramian: Tensor, *, precision: float | Tensor = DOUBLE) -> Solution:
    """Return the weights [..., T] of the mean of all projected gradients, for a Gramian [..., T, T].

    Gradients are projected onto the dual cone: the projection of g_t is g_t + Jᵀx for the x >= 0 that makes it
    shortest, which is T non-negative least-squares problems.
    Source: Quinton & Rey, "Jacobian Descent for Multi-Objective Optimization", 2024, eq. 3 and proposition 1.

    Args:
        gramian: The Gramians [..., T, T].
        precision: The eps [...] of the type the gradients were computed in: no projection is longer than its gradient
            whatever rounding hides of the Gramian.
    """
    return Solution(*over_batch(_solve, gramian, hidden_part(gramian, precision)))


def _solve(gramian: Array, hidden: Array) -> tuple[Array, bool]:
    matrix, _ = scaled(gramian)
    rows = factor(matrix, max(FLAT, float(hidden)))
    lengths = np.linalg.norm(rows, axis=1)
    live = lengths > 0.0

    converged, weights = True, np.eye(len(rows))
    if not live.any():
        return weights.mean(axis=0), converged

    # In units of each gradient's length, so that of several solutions the least is as accurate as the angles are.
    units = rows[live] / lengths[live, None]
    added = np.zeros((len(units), len(units)))
    for task, unit in enumerate(units):
        added[task], solved = _projection(units, unit, float(hidden))
        converged = converged and solved

    weights[np.ix_(live, live)] += added * lengths[live, None] / lengths[live]
    moved = live.nonzero()[0][added.any(axis=1)]
    weights[moved] *= shrinkage(weights[moved], np.sqrt(matrix.diagonal()[moved]), matrix, hidden)[:, None]
    return weights.mean(axis=0), converged


def dual_projection_weights(gramian: Tensor, *, precision: float | Tensor = DOUBLE) -> Solution:
    """Return the weights [..., T] of the mean gradient, projected onto the directions that no task loses by.

    They are the w >= 1/T that make Jᵀw shortest. All gradients zero, or a mean of zero: equal weights.
    Source: Lopez-Paz & Ranzato, NeurIPS 2017, eq. 11, with the mean gradient in place of the current task's.

    Args:
        gramian: The Gramians [..., T, T].
        precision: The eps [...] of the type the gradients were computed in: the projection is no longer than the mean
            whatever rounding hides of the Gramian.
    """
    return Solution(*over_batch(_solve_mean, gramian, hidden_part(gramian, precision)))


def _solve_mean(gramian: Array, hidden: Array) -> tuple[Array, bool]:
    matrix, _ = scaled(gramian)
    rows = factor(matrix, max(FLAT, float(hidden)))
    lengths, mean = np.linalg.norm(rows, axis=1), rows.mean(axis=0)
    live, size = lengths > 0.0, float(np.linalg.norm(mean))
    weights = uniform(len(rows))
    least, _ = length_bounds(weights, matrix, hidden)
    if min(size, least) <= VANISHED * lengths.mean():
        return weights, True

    added, converged = _projection(rows[live] / lengths[live, None], mean / size, float(hidden))
    if added.any():
        weights[live] += size * added / lengths[live]
        weights *= shrinkage(weights, least, matrix, hidden)
    return weights, converged


def _projection(units: Array, vector: Array, hidden: float) -> tuple[Array, bool]:
    """Return the least x >= 0 [T] that makes vector + unitsᵀx shortest, and whether it was found."""
    # Opposed gradients would otherwise enter together with huge weights that cancel.
    ridge = max(RIDGE, np.sqrt(hidden))
    regular = np.vstack([units.T, ridge * np.eye(len(units))])
    try:
        shares = least_squares(regular, np.concatenate([-vector, np.zeros(len(units))]))
    except RuntimeError:  # the iteration limit
        return np.zeros(len(units)), False

    gains = units @ (vector + units.T @ shares)
    allowance = max(CERTIFIED, ridge)
    if units.shape[1] < len(units):
        shares = least_norm(shares, units, gains <= allowance)
    return shares, bool(gains.min() >= -allowance)
