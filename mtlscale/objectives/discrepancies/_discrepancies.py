"""Discrepancies between two sets of features, source [Ns, q] and target [Nt, q].

All are differentiable scalars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from mtlscale.config import UserError

WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0)  # of MMD's kernels, times the mean squared distance


def population_correlation(source: Tensor, target: Tensor) -> Tensor:
    """Return (1/Ns) Σ_i max_j c_ij + (1/Nt) Σ_j max_i c_ij ∈ [-2, 2], with the cosines c.

    It is 2 iff every feature has a parallel one. It is symmetric, and does not change with a positive scale of any row,
    a common rotation or the order of rows; a row of zeros has cosine 0 to all. The gradient goes through the maximiser
    alone. Source: AASPC (the thesis' chapter 4).
    """
    check_pair(source, target)
    cosines = _directions(source) @ _directions(target).T
    return cosines.max(1).values.mean() + cosines.max(0).values.mean()


def mean_discrepancy(source: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
    """Return the squared maximum mean discrepancy (biased) for a product of sums of Gaussian kernels.

    Each factor of the product is the sum of kernels on one entry of the sequences. One entry is MMD (Gretton et al.
    2012; several kernels as Long et al. 2015); features and predictions together are JAN's joint discrepancy (Long et
    al. 2017). The kernels' widths follow the mean distance, without a gradient.
    """
    count = len(source[0])
    joint: Tensor | None = None
    for source_values, target_values in zip(source, target, strict=True):
        check_pair(source_values, target_values)
        pooled = torch.cat([source_values, target_values])
        kernel = _kernels(pooled)
        joint = kernel if joint is None else joint * kernel
    assert joint is not None
    return joint[:count, :count].mean() + joint[count:, count:].mean() - 2 * joint[:count, count:].mean()


def covariance_distance(source: Tensor, target: Tensor) -> Tensor:
    """Return ‖C_s - C_t‖²_F / (4 q²) of the covariances: CORAL (Sun & Saenko 2016).

    A single sample has covariance 0.
    """
    check_pair(source, target)
    return (_covariance(source) - _covariance(target)).square().sum() / (4 * source.shape[1] ** 2)


def moment_discrepancy(source: Tensor, target: Tensor, moments: int = 5) -> Tensor:
    """Return ‖E s - E t‖ + Σ_{k=2..K} ‖c_k(s) - c_k(t)‖ with the central moments c_k.

    It is meant for features in [0, 1]: CMD (Zellinger et al. 2017).
    """
    check_pair(source, target)
    means = source.mean(0), target.mean(0)
    total = _norm(means[0] - means[1])
    centred = source - means[0], target - means[1]
    for order in range(2, moments + 1):
        total = total + _norm(centred[0].pow(order).mean(0) - centred[1].pow(order).mean(0))
    return total


def symmetric_divergence(source: Tensor, target: Tensor) -> Tensor:
    """Return KL(p‖q) + KL(q‖p), p and q the domains' mean softmax of their features (as Zhuang et al. 2015)."""
    check_pair(source, target)
    logs = [values.log_softmax(1).logsumexp(0) - math.log(len(values)) for values in (source, target)]
    return ((logs[0].exp() - logs[1].exp()) * (logs[0] - logs[1])).sum()


def check_pair(source: Tensor, target: Tensor) -> None:
    """Raise `UserError` if the features have other shapes than [Ns, q] and [Nt, q], or a domain has no sample."""
    if source.ndim != 2 or target.ndim != 2 or source.shape[1] != target.shape[1]:
        raise UserError(
            f"features of two domains are [Ns, q] and [Nt, q], not {list(source.shape)} and {list(target.shape)}"
        )
    if not len(source) or not len(target):
        raise UserError("features of two domains: one of them has no sample")


def _directions(values: Tensor) -> Tensor:
    """Scale rows to length one; a row of zeros stays as it is, and has no gradient."""
    largest = values.detach().abs().amax(1, keepdim=True)  # no square overflows or vanishes
    scaled = values / torch.where(largest > 0, largest, 1.0)
    squares = scaled.square().sum(1, keepdim=True)
    lengths = torch.where(squares > 0, squares, 1.0).sqrt()
    return torch.where(squares > 0, scaled / lengths, torch.zeros_like(scaled))


def _kernels(values: Tensor) -> Tensor:
    """Return the sum [N, N] of Gaussian kernels over all widths."""
    squares = values.square().sum(1)
    distances = (squares[:, None] + squares[None, :] - 2 * values @ values.T).clamp(min=0)
    count = len(values)
    width = distances.detach().sum() / max(1, count * count - count)
    width = torch.where(width > 0, width, 1.0)
    return torch.stack([(-distances / (factor * width)).exp() for factor in WIDTHS]).sum(0)


def _covariance(values: Tensor) -> Tensor:
    centred = values - values.mean(0)
    return centred.T @ centred / max(1, len(values) - 1)


def _norm(values: Tensor) -> Tensor:
    """Return the length of a vector, with gradient 0 at length 0."""
    square = values.square().sum()
    return torch.where(square > 0, square, 1.0).sqrt() * (square > 0)
