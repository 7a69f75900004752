"""Gramian weightings with a closed form: IMTL-G and Aligned-MTL."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mtlscale.solvers._common import (
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


def imtl_g_weights(gramian: Tensor) -> Solution:
    """gramian [..., T, T] -> weights [..., T], summing to 1, whose direction projects equally on every task gradient.

    K w is proportional to the norms: w = K⁺n / 1ᵀK⁺n, n = √diag K. Where no direction has equal projections this
    is the least-squares answer, flagged as not converged; where K⁺n sums to 0 the weights are 0, flagged too. All
    gradients zero: equal weights.
    Source: Liu et al., "Towards Impartial Multi-task Learning", ICLR 2021.
    """
    return Solution(*over_batch(_imtl_g, gramian))


def _imtl_g(gramian: Array) -> tuple[Array, bool]:
    rows = factor(scaled(gramian)[0])
    if not rows.shape[1]:
        return uniform(len(rows)), True
    norms = np.linalg.norm(rows, axis=1)
    live = norms > 0.0
    units = rows[live] / norms[live, None]
    direction = np.linalg.lstsq(units, np.ones(int(live.sum())), rcond=np.sqrt(FLAT))[0]
    solution = np.zeros(len(rows))
    solution[live] = np.linalg.lstsq(units.T, direction, rcond=np.sqrt(FLAT))[0] / norms[live]
    if rows.shape[1] < len(rows):
        flat = flat_directions(rows)
        solution -= flat @ (flat.T @ solution)
    total = solution.sum()
    if abs(total) <= VANISHED * np.abs(solution).sum():
        return np.zeros(len(rows)), False
    return solution / total, bool(np.abs(units @ direction - 1.0).max() <= 1e-6)


def aligned_weights(gramian: Tensor, scale: str = "min") -> Tensor:
    """gramian [..., T, T] -> weights [..., T]: the average of the gradients after their principal components have been
    brought to equal length.

    That length is √ of the smallest ("min"), the median or the mean ("rmse") non-zero eigenvalue of K. All gradients
    zero: equal weights. Source: Senushkin et al., CVPR 2023, Algorithm 1.
    """
    matrix, finite = on_host(gramian)
    values, vectors = torch.linalg.eigh(matrix)
    kept = (values > FLAT * values[..., -1:]) & (values[..., -1:] > 0)
    absent = torch.full_like(values, torch.nan)
    if scale == "min":
        size = torch.where(kept, values, torch.inf).amin(-1, keepdim=True)
    elif scale == "median":
        size = torch.where(kept, values, absent).nanmedian(-1, keepdim=True).values
    else:
        size = torch.where(kept, values, absent).nanmean(-1, keepdim=True)
    stretch = torch.where(kept, (size / torch.where(kept, values, 1.0)).sqrt(), 0.0)
    equal = torch.full_like(values, 1.0 / matrix.shape[-1])
    aligned = torch.einsum("...ij,...j,...kj,...k->...i", vectors, stretch, vectors, equal)
    weights = torch.where(kept.any(-1, keepdim=True), aligned, equal)
    return restore(torch.where(finite, weights, torch.nan), gramian)
