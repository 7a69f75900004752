"""Min-norm point of the convex hull of task gradients (Désidéri 2012; docs/methods.md)."""

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
    length_bounds,
    nonnegative_least_squares,
    over_batch,
    scaled,
    uniform,
)

NEGLIGIBLE = 1e-6  # weighted gradients shorter than this part of the longest have weights of exactly zero
ROUNDING = 1e-11  # so have weights below this part of the largest, which rounding leaves


def min_norm_weights(
    gramian: Tensor, *, toward_average: float | Tensor = 0.0, precision: float | Tensor = DOUBLE
) -> Tensor:
    """Return the β [..., T] on the simplex that minimises ‖Jᵀβ‖² = βᵀKβ, for a Gramian [..., T, T].

    Exact (active set); of several minimisers the one of least Euclidean norm.

    Args:
        gramian: The Gramians [..., T, T].
        toward_average: A λ [...] >= 0, with which ‖Jᵀβ + λ g₀‖ is minimised instead.
        precision: The eps [...] of the type the gradients were computed in: lengths that it hides are no reason to
            prefer one β to another.
    """
    return solve_min_norm(gramian, toward_average=toward_average, precision=precision).weights


def solve_min_norm(
    gramian: Tensor, *, toward_average: float | Tensor = 0.0, precision: float | Tensor = DOUBLE
) -> Solution:
    """Return `min_norm_weights` with, per Gramian, whether the optimality conditions hold."""
    return Solution(*over_batch(_solve, gramian, toward_average, hidden_part(gramian, precision)))


def _solve(gramian: Array, toward_average: Array, hidden: Array) -> tuple[Array, bool]:
    matrix, _ = scaled(gramian)
    rows = factor(matrix, max(FLAT, float(hidden)))
    if toward_average > 0.0 and rows.shape[1]:
        pull = float(toward_average) * rows.mean(axis=0)
        lengths = np.linalg.norm(rows, axis=1) + np.linalg.norm(pull)
        rows = rows + pull
        rows[np.linalg.norm(rows, axis=1) <= VANISHED * lengths] = 0.0
        rows /= np.linalg.norm(rows, axis=1).max()

    weights, certified = min_norm_of(rows)
    equal, squares = uniform(len(rows)), matrix.diagonal()
    least, longest = length_bounds(weights + toward_average * equal, matrix, hidden)
    if least > 0.5 * longest or not squares.any():
        return weights, certified

    # A sum that may be longer than one of its terms, or than their mean, is not taken for the minimum.
    shortest = np.eye(len(rows))[np.where(squares > 0.0, squares, np.inf).argmin()]
    candidates = np.array([weights, equal, shortest])
    _, longest = length_bounds(candidates + toward_average * equal, matrix, hidden)
    return candidates[longest.argmin()], certified


def min_norm_of(rows: Array) -> tuple[Array, bool]:
    """Return the min-norm weights [T] of gradients [T, r], and whether they are proved optimal.

    The longest gradient has length 1. The minimum over the simplex is the non-negative least-squares solution of
    rowsᵀx = 0, ρ 1ᵀx = ρ, brought to sum one: with x = sβ its value is s²‖Jᵀβ‖² + ρ²(1 - s)², least in s at a value
    that grows with ‖Jᵀβ‖².
    """
    tasks = len(rows)
    if not rows.shape[1]:
        return uniform(tasks), True

    norms = np.linalg.norm(rows, axis=1)
    lift = norms[norms > 0.0].min()
    try:
        point = nonnegative_least_squares(np.vstack([rows.T, np.full(tasks, lift)]))
    except RuntimeError:  # the iteration limit; the shortest gradient is the best single point
        return np.eye(tasks)[norms.argmin()], False

    weights = point / point.sum()
    shortest = rows.T @ weights
    inner, square = rows @ shortest, float(shortest @ shortest)
    certified = square - inner.min() <= CERTIFIED

    face = inner - square <= norms * (1e-7 * np.sqrt(square) + 1e-14)
    if rows.shape[1] < tasks:
        weights = least_norm(weights, rows, face, np.ones(tasks))
    lengths = weights * norms
    weights[(norms > 0.0) & ((lengths < NEGLIGIBLE * lengths.max()) | (weights < ROUNDING * weights.max()))] = 0.0

    return weights / weights.sum(), bool(certified)
