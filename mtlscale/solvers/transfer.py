"""How alike tasks are before training: SVD re-weighting and the covariance similarity score (Wu et al., ICLR 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def svd_task_weights(X: Tensor, Y: Tensor, rank: int) -> Tensor:
    """X [N, d], Y [N, T] -> [T]: the norm of each XᵀY_t in the span of their `rank` leading left singular vectors.

    Raw norms: they scale with N and the labels; from rank T on those of the whole XᵀY_t. Wu et al., Algorithm 2.
    """
    correlation = X.to(torch.float64).T @ Y.to(torch.float64)
    return subspace_norms(list(correlation.unsqueeze(-1).unbind(1)), rank).to(X)


def subspace_norms(directions: Sequence[Tensor], rank: int) -> Tensor:
    """directions: one [d, c_t] per task -> [T]: the Frobenius norm of each in the leading `rank`-dimensional subspace
    of all their columns, or in all of it where it has fewer dimensions."""
    if rank < 1:
        raise ValueError(f"rank: {rank} is not positive")
    basis = torch.linalg.svd(torch.cat(list(directions), dim=1), full_matrices=False).U[:, :rank]
    return torch.stack([torch.linalg.matrix_norm(basis.T @ direction) for direction in directions])


def covariance_similarity(X1: Tensor, X2: Tensor, energy: float = 0.99) -> float:
    """X1 [N1, d], X2 [N2, d] -> score in [0, 1]: how much the leading covariance directions of both overlap.

    Uncentred covariances, cut at `energy` of their trace (ties at the cut included); NaN for zero input.
    """
    return float(covariance_similarities([X1, X2], energy)[0, 1])


def covariance_similarities(inputs: Sequence[Tensor], energy: float = 0.99) -> Tensor:
    """inputs: one [N_t, d] per task -> [T, T] float64: the score of every pair; each is decomposed once."""
    return _overlaps([_of_rows(X.to(torch.float64), energy) for X in inputs])


def similarities_of_covariances(covariances: Sequence[Tensor], energy: float = 0.99) -> Tensor:
    """covariances: one XᵀX [d, d] per task -> [T, T] float64: the same scores, where X itself is too large to keep."""
    return _overlaps([_of_covariance(C.to(torch.float64), energy) for C in covariances])


def _overlaps(leading: Sequence[Tensor]) -> Tensor:
    """leading: U D^½ [d, r_t] per task -> [T, T]; NaN with a task that is all zero."""
    result = torch.full((len(leading), len(leading)), math.nan, dtype=torch.float64)
    for i, first in enumerate(leading):
        for j, second in enumerate(leading[: i + 1]):
            size = torch.linalg.matrix_norm(first) * torch.linalg.matrix_norm(second)
            if size > 0:
                result[i, j] = result[j, i] = torch.linalg.matrix_norm(first.T @ second) / size
    return result


def _of_rows(data: Tensor, energy: float) -> Tensor:
    """U D^½ [d, r] of the covariance dataᵀdata: its leading eigenvectors times their singular values."""
    largest = data.abs().max()
    _, values, vectors = torch.linalg.svd(data / largest if largest > 0 else data, full_matrices=False)
    return _leading(values**2, vectors.T, energy)


def _of_covariance(covariance: Tensor, energy: float) -> Tensor:
    """The same of the covariance itself."""
    largest = covariance.abs().max()
    spectrum, vectors = torch.linalg.eigh(covariance / largest if largest > 0 else covariance)
    return _leading(spectrum.flip(0).clamp(min=0), vectors.flip(1), energy)


def _leading(spectrum: Tensor, vectors: Tensor, energy: float) -> Tensor:
    """Of eigenvalues [n], descending, and their vectors [d, n]: those that reach `energy`, times the values' roots."""
    reached = spectrum.cumsum(0) >= energy * spectrum.sum() * (1.0 - 1e-12)
    cut = spectrum[reached.int().argmax()]
    kept = spectrum >= cut * (1.0 - 1e-9)
    found: Tensor = vectors[:, kept] * spectrum[kept].sqrt()
    return found
