"""Linear function plus norm over the simplex: the inner problem of CAGrad and GetMTL (docs/methods.md)."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    CERTIFIED,
    VANISHED,
    Array,
    Solution,
    factor,
    least_norm,
    nonnegative_least_squares,
    over_batch,
    scaled,
    uniform,
)


def linear_plus_norm(linear: Tensor, radius: float | Tensor, gramian: Tensor) -> Solution:
    """Return the w [..., T] on the simplex that minimises bᵀw + r √(wᵀMw), with whether its duality gap is closed.

    Args:
        linear: The b [..., T].
        radius: The r >= 0 [...].
        gramian: The M [..., T, T].
    """
    return Solution(*over_batch(_solve, gramian, radius, vectors=(linear,)))


def _solve(gramian: Array, linear: Array, radius: Array) -> tuple[Array, bool]:
    matrix, scale = scaled(gramian)
    reach = float(radius) * np.sqrt(scale)
    size = max(reach, np.abs(linear).max())
    if size == 0.0:
        return uniform(len(linear)), True
    rows = factor(matrix)
    return linear_plus_norm_of(rows, linear / size, reach / size, independent=rows.shape[1] == len(rows))


def _shortest(rows: Array, linear: Array, value: float) -> Array:
    """Return the x >= 0 [T], up to scale, of the shortest z with linear + rows z >= value."""
    # z = rowsᵀx / (1 - (value - linear)ᵀx).
    return nonnegative_least_squares(np.vstack([rows.T, value - linear]))


def best_in_ball(rows: Array, linear: Array, radius: float, hidden: float, *, independent: bool) -> tuple[Array, bool]:
    """Return the p >= 0 [T] of the z = rowsᵀp in the ball ‖z‖ <= radius with the largest min(linear + rows z).

    With the minimiser w of `linear_plus_norm`, z is radius rowsᵀw/‖rowsᵀw‖, unless that length cannot be told from 0.
    Then no z does better than linear · w, and z is the shortest that does as well. Return also whether it was proved.

    Args:
        rows: The factor [T, r] of M.
        linear: The b [T].
        radius: The r > 0.
        hidden: The part of squared lengths that rounding hides.
        independent: As in `linear_plus_norm_of`.
    """
    lengths = np.linalg.norm(rows, axis=1)
    worst, converged = linear_plus_norm_of(rows, linear, radius, independent=independent)
    size = float(np.linalg.norm(rows.T @ worst))
    unknown = max(VANISHED, np.sqrt(hidden)) * float(np.linalg.norm(worst * lengths))
    if size > unknown:
        return radius / size * worst, converged

    # As well but for what cannot be told: multipliers in the millions would squeeze the last bit out of rounding.
    scale = max(np.abs(linear).max(), radius * lengths.max())
    level = linear @ worst - max(CERTIFIED * scale, radius * unknown)
    try:
        multipliers = _shortest(rows, linear, level)
    except RuntimeError:  # the iteration limit
        return np.zeros(len(linear)), False

    pull = multipliers / max(1e-300, 1.0 - float((level - linear) @ multipliers))
    if not independent:
        pull = least_norm(pull, rows, linear + rows @ (rows.T @ pull) - level <= 1e-8 * scale)
    return pull, bool((linear + rows @ (rows.T @ pull)).min() >= level - CERTIFIED * scale)


def linear_plus_norm_of(rows: Array, linear: Array, radius: float, *, independent: bool) -> tuple[Array, bool]:
    """Return the minimiser of `linear_plus_norm` for M = rows rowsᵀ, and whether the duality gap is closed.

    The dual asks for the largest t such that some z with ‖z‖ <= radius has linear + rows z >= t. For a given t the
    shortest such z is a non-negative least-squares problem, whose multipliers, brought to sum one, are weights w; the
    value at w is Newton's next t. So t falls monotonically onto the minimum, in finitely many steps.

    Args:
        rows: The factor [T, r] of M.
        linear: The b [T].
        radius: The r >= 0.
        independent: Whether the rows have a single solution; otherwise the one of least Euclidean norm is chosen.
    """
    tasks = len(linear)
    lengths = np.linalg.norm(rows, axis=1)
    size = max(np.abs(linear).max(), radius * lengths.max())
    if size == 0.0:
        return uniform(tasks), True

    vertices = linear + radius * lengths
    best = int(vertices.argmin())
    weights, value, bound = np.eye(tasks)[best], vertices[best], linear.min()
    ties = linear - bound <= 1e-14 * size
    if radius == 0.0:
        return ties / ties.sum(), True

    try:
        for _ in range(100):
            multipliers = _shortest(rows, linear, value)
            if not multipliers.any():
                break
            candidate = multipliers / multipliers.sum()
            reached = linear @ candidate + radius * np.linalg.norm(rows.T @ candidate)
            if reached > value + 1e-14 * size:
                break
            stalled = value - reached <= 1e-15 * size
            weights, value = candidate, reached
            if stalled:
                break

        # A value just below the minimum is reached inside the ball, unless the minimum lies lower.
        nearly = value - 0.5 * CERTIFIED * size
        multipliers = _shortest(rows, linear, nearly)
        dual = rows.T @ multipliers / max(1e-300, 1.0 - float((nearly - linear) @ multipliers))
        dual *= min(1.0, radius / max(1e-300, float(np.linalg.norm(dual))))
        bound = (linear + rows @ dual).min()
    except RuntimeError:  # the iteration limit: the gap stays open
        pass

    direction = rows.T @ weights
    length = np.linalg.norm(direction)
    if length > 0.0 and not independent:
        slacks = linear + rows @ (direction * (radius / length)) - value
        face = slacks <= 1e-8 * np.maximum(np.abs(linear), radius * lengths)
        weights = least_norm(weights, rows, face, np.ones(tasks), linear)
        weights = weights / weights.sum()

    return weights, bool(value - bound <= CERTIFIED * size)
