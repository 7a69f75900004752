"""Task similarity before training: SVD re-weighting and the covariance similarity score (Wu et al., ICLR 2020)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def svd_task_weights(X: Tensor, Y: Tensor, rank: int) -> Tensor:
    """Return the norm [T] of each XᵀY_t in the span of their `rank` leading left singular vectors.

    Raw norms: they scale with N and the labels; from rank T on those of the whole XᵀY_t. Wu et al., Algorithm 2.

    Args:
        X: The samples [N, d].
        Y: The labels [N, T].
        rank: The dimension of the span.
    """
    correlation = X.to(torch.float64).T @ Y.to(torch.float64)
    return subspace_norms(list(correlation.unsqueeze(-1).unbind(1)), rank).to(X)


def subspace_norms(directions: Sequence[Tensor], rank: int) -> Tensor:
    """Return the Frobenius norm [T] of each task's directions in the leading subspace of all their columns.

    Args:
        directions: One [d, c_t] per task.
        rank: The dimension of the subspace; all columns' span where that has fewer dimensions.
    """
    if rank < 1:
        raise ValueError(f"rank: {rank} is not positive")
    basis = torch.linalg.svd(torch.cat(list(directions), dim=1), full_matrices=False).U[:, :rank]
    return torch.stack([torch.linalg.matrix_norm(basis.T @ direction) for direction in directions])


def covariance_similarity(X1: Tensor, X2: Tensor, energy: float = 0.99) -> float:
    """Return the score in [0, 1]: how much the leading covariance directions of both overlap; NaN for zero input.

    Args:
        X1: The samples [N1, d] of one task.
        X2: The samples [N2, d] of the other task.
        energy: The part of the trace at which the uncentred covariances are cut (ties at the cut included).
    """
    return float(covariance_similarities([X1, X2], energy)[0, 1])


def covariance_similarities(inputs: Sequence[Tensor], energy: float = 0.99) -> Tensor:
    """Return the score of every pair, [T, T] float64; each task is decomposed once.

    Args:
        inputs: The samples [N_t, d] of each task.
        energy: The part of the trace at which covariances are cut.
    """
    return _overlaps([_of_rows(X.to(torch.float64), energy) for X in inputs])


def similarities_of_covariances(covariances: Sequence[Tensor], energy: float = 0.99) -> Tensor:
    """Return the score of every pair, [T, T] float64, where the samples X are too large to keep.

    Args:
        covariances: One XᵀX [d, d] per task.
        energy: The part of the trace at which covariances are cut.
    """
    return _overlaps([_of_covariance(C.to(torch.float64), energy) for C in covariances])


def _overlaps(leading: Sequence[Tensor]) -> Tensor:
    """Return the overlaps [T, T] of U D^½ [d, r_t] per task; NaN with a task that is all zero."""
    result = torch.full((len(leading), len(leading)), math.nan, dtype=torch.float64)
    for i, first in enumerate(leading):
        for j, second in enumerate(leading[: i + 1]):
            size = torch.linalg.matrix_norm(first) * torch.linalg.matrix_norm(second)
            if size > 0:
                result[i, j] = result[j, i] = torch.linalg.matrix_norm(first.T @ second) / size
    return result


def _of_rows(data: Tensor, energy: float) -> Tensor:
    """Return U D^½ [d, r] of the covariance dataᵀdata: its leading eigenvectors times their singular values."""
    largest = data.abs().max()
    _, values, vectors = torch.linalg.svd(data / largest if largest > 0 else data, full_matrices=False)
    return _leading(values**2, vectors.T, energy)


def _of_covariance(covariance: Tensor, energy: float) -> Tensor:
    """Return U D^½ [d, r] of the covariance itself."""
    largest = covariance.abs().max()
    spectrum, vectors = torch.linalg.eigh(covariance / largest if largest > 0 else covariance)
    return _leading(spectrum.flip(0).clamp(min=0), vectors.flip(1), energy)


def _leading(spectrum: Tensor, vectors: Tensor, energy: float) -> Tensor:
    """Return the vectors [d, n] that hold the part `energy` of the spectrum, times the roots of their eigenvalues."""
    reached = spectrum.cumsum(0) >= energy * spectrum.sum() * (1.0 - 1e-12)
    cut = spectrum[reached.int().argmax()]
    is_leading = spectrum >= cut * (1.0 - 1e-9)
    scaled_vectors: Tensor = vectors[:, is_leading] * spectrum[is_leading].sqrt()
    return scaled_vectors
