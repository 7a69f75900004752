"""Gramian weightings with a closed form: IMTL-G, ConFIG and Aligned-MTL."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mtlscale.solvers._gramian_common import (
    DOUBLE,
    FLAT,
    VANISHED,
    Array,
    Solution,
    factor,
    flat_directions,
    on_host,
    over_batch,
    restore,
    scaled,
    uniform,
)

MIN_REMAINDER = 1e-2  # without an exact answer, the least sum of the weights over the sum of their sizes


def imtl_g_weights(gramian: Tensor, *, precision: float | Tensor = DOUBLE) -> Solution:
    """Return the weights [..., T], summing to 1, whose direction projects equally on every task gradient.

    K w is proportional to the norms: w = K⁺n / 1ᵀK⁺n, n = √diag K. Where no direction has equal projections this is the
    least-squares answer, flagged as not converged; where that has no projections either, or K⁺n sums to 0, the weights
    are 0, flagged too, and so is a direction that projects negatively on every gradient, for which K⁺n has a negative
    sum. All gradients zero: equal weights.
    Source: Liu et al., "Towards Impartial Multi-task Learning", ICLR 2021.

    Args:
        gramian: The Gramians [..., T, T].
        precision: The eps [...] of the type the gradients were computed in; eigenvalues of the cosines below T times
            it, of the largest, count as zero.
    """
    return Solution(*over_batch(_imtl_g, gramian, precision))


def _imtl_g(gramian: Array, precision: Array) -> tuple[Array, bool]:
    projections = _equal_projections(gramian, precision)
    if projections.direction is None:
        return projections.weights, projections.equal

    solution = projections.weights
    if projections.rows.shape[1] < len(projections.rows):
        flat = flat_directions(projections.rows)
        solution = solution - flat @ (flat.T @ solution)

    total = solution.sum()
    if abs(total) <= (VANISHED if projections.equal else MIN_REMAINDER) * np.abs(solution).sum():
        return np.zeros(len(solution)), False
    return solution / total, projections.equal and bool(total > 0.0)


class _EqualProjections(NamedTuple):
    """The direction with the same projection on every unit gradient, the least-squares one where there is none.

    Attributes:
        rows: Factor [T, r] of the Gramian.
        direction: The direction [r]; None where `weights` are the answer already.
        weights: What the direction is a combination of, by task.
        equal: Whether all projections are equal.
    """

    rows: Array
    direction: Array | None
    weights: Array
    equal: bool


def _equal_projections(gramian: Array, precision: Array) -> _EqualProjections:
    """Return the direction of equal projections; weights of 0 for opposed gradients, equal ones if all are zero."""
    flat_part = max(FLAT, len(gramian) * float(precision))
    rows = factor(scaled(gramian)[0], flat_part)
    if not rows.shape[1]:
        return _EqualProjections(rows, None, uniform(len(rows)), True)

    norms = np.linalg.norm(rows, axis=1)
    live = norms > 0.0
    units = rows[live] / norms[live, None]

    direction = np.linalg.lstsq(units, np.ones(int(live.sum())), rcond=np.sqrt(FLAT))[0]
    projections = units @ direction
    equal = bool(np.abs(projections - 1.0).max() <= np.sqrt(flat_part))
    solution = np.zeros(len(rows))
    if np.abs(projections).max() <= np.sqrt(flat_part):  # opposed gradients: what is left is rounding
        return _EqualProjections(rows, None, solution, False)

    solution[live] = np.linalg.lstsq(units.T, direction, rcond=np.sqrt(FLAT))[0] / norms[live]
    return _EqualProjections(rows, direction, solution, equal)


def config_weights(gramian: Tensor, *, precision: float | Tensor = DOUBLE) -> Solution:
    """Return the weights [..., T] of ConFIG's direction: equal cosines with all gradients, as long as all projections.

    With the unit gradients U and v = U⁺1, the update is (Σ_t ⟨g_t, v⟩) v / ‖v‖². Where no direction has equal cosines
    this is the least-squares answer, flagged as not converged; opposed gradients get weights of 0. All gradients zero:
    equal weights.
    Source: Liu, Chu & Thuerey, ICLR 2025, eq. 2.

    Args:
        gramian: The Gramians [..., T, T].
        precision: The eps [...] of the type the gradients were computed in; eigenvalues of the cosines below T times
            it, of the largest, count as zero.
    """
    return Solution(*over_batch(_config, gramian, precision))


def _config(gramian: Array, precision: Array) -> tuple[Array, bool]:
    projections = _equal_projections(gramian, precision)
    if projections.direction is None:
        return projections.weights, projections.equal
    length = (projections.rows @ projections.direction).sum() / (projections.direction @ projections.direction)
    return projections.weights * length, projections.equal


def aligned_weights(gramian: Tensor, scale: str = "min", *, precision: float | Tensor = DOUBLE) -> Tensor:
    """Return the weights [..., T] of the average of the gradients, once their principal components have equal length.

    Source: Senushkin et al., CVPR 2023, Algorithm 1. All gradients zero: equal weights.

    Args:
        gramian: The Gramians [..., T, T].
        scale: The length that the components are brought to: √ of the smallest ("min"), the median or the mean ("rmse")
            non-zero eigenvalue of K.
        precision: The eps [...] of the type the gradients were computed in; eigenvalues below T times it, of the
            largest, count as zero.
    """
    matrix, finite = on_host(gramian)
    values, vectors = torch.linalg.eigh(matrix)

    eps = torch.as_tensor(precision, dtype=torch.float64, device="cpu").unsqueeze(-1)
    flat = (matrix.shape[-1] * eps).clamp(min=FLAT)
    nonzero = (values > flat * values[..., -1:]) & (values[..., -1:] > 0)

    absent = torch.full_like(values, torch.nan)
    if scale == "min":
        size = torch.where(nonzero, values, torch.inf).amin(-1, keepdim=True)
    elif scale == "median":
        size = torch.where(nonzero, values, absent).nanmedian(-1, keepdim=True).values
    else:
        size = torch.where(nonzero, values, absent).nanmean(-1, keepdim=True)

    stretch = torch.where(nonzero, (size / torch.where(nonzero, values, 1.0)).sqrt(), 0.0)
    equal = torch.full_like(values, 1.0 / matrix.shape[-1])
    aligned = torch.einsum("...ij,...j,...kj,...k->...i", vectors, stretch, vectors, equal)
    weights = torch.where(nonzero.any(-1, keepdim=True), aligned, equal)

    return restore(torch.where(finite, weights, torch.nan), gramian)
