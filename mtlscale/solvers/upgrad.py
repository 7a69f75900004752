"""UPGrad: projections of each gradient onto the directions that no task loses by."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    CERTIFIED,
    Array,
    Solution,
    factor,
    least_norm,
    least_squares,
    over_batch,
    scaled,
)

RIDGE = 1e-9  # on the weights of unit gradients: moves a projection by half of that at most


def upgrad_weights(gramian: Tensor) -> Solution:
    """Return the weights [..., T] of the mean of all projected gradients, for a Gramian [..., T, T].

    Gradients are projected onto the dual cone: the projection of g_t is g_t + Jᵀx for the x >= 0 that makes it
    shortest, which is T non-negative least-squares problems.
    Source: Quinton & Rey, "Jacobian Descent for Multi-Objective Optimization", 2024, eq. 3 and proposition 1.
    """
    return Solution(*over_batch(_solve, gramian))


def _solve(gramian: Array) -> tuple[Array, bool]:
    rows = factor(scaled(gramian)[0])
    lengths = np.linalg.norm(rows, axis=1)
    live = lengths > 0.0

    converged, weights = True, np.eye(len(rows))
    if not live.any():
        return weights.mean(axis=0), converged

    # In units of each gradient's length, so that of several solutions the least is as accurate as the angles are.
    units = rows[live] / lengths[live, None]
    added = np.zeros((len(units), len(units)))
    # Opposed gradients would otherwise enter together with huge weights that cancel.
    regular = np.vstack([units.T, RIDGE * np.eye(len(units))])

    for task, unit in enumerate(units):
        try:
            shares = least_squares(regular, np.concatenate([-unit, np.zeros(len(units))]))
        except RuntimeError:  # the iteration limit
            converged = False
            continue

        gains = units @ (unit + units.T @ shares)
        converged = converged and bool(gains.min() >= -CERTIFIED)
        if units.shape[1] < len(units):
            shares = least_norm(shares, units, gains <= CERTIFIED)
        added[task] = shares

    weights[np.ix_(live, live)] += added * lengths[live, None] / lengths[live]
    return weights.mean(axis=0), converged
