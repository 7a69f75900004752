"""Projections onto the simplex, and onto the Kullback-Leibler ball around its centre; the choice of a corner."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import log_softmax
from torch import Tensor

from mtlscale.solvers._gramian_common import Array, to_numpy


def project_simplex(points: Tensor) -> Tensor:
    """Return the points [..., T] of the simplex nearest to the given ones; NaN where a point is not finite."""
    values = points.to(torch.float64)
    values = values - values.amax(-1, keepdim=True)
    descending = values.sort(dim=-1, descending=True).values
    counts = torch.arange(1, points.shape[-1] + 1, dtype=torch.float64, device=points.device)
    excess = (descending.cumsum(-1) - 1.0) / counts
    support_size = (descending > excess).sum(-1, keepdim=True)
    nearest = (values - excess.gather(-1, (support_size - 1).clamp(min=0))).clamp(min=0.0)
    return torch.where(points.isfinite().all(-1, keepdim=True), nearest, torch.nan).to(points)


def first_largest(values: Tensor) -> Tensor:
    """Return the position [...] of the largest of the values [..., N]; of those equal within rounding the first.

    A discrete choice by this is the same on every processor where the values have the same limit.
    """
    largest = values.amax(-1, keepdim=True)
    rounding = 1e3 * torch.finfo(values.dtype).eps * largest.abs()
    return (values >= largest - rounding).int().argmax(-1)


def kl_ball_log_softmax(logits: Tensor, radius: float | Tensor) -> Tensor:
    """Return log p [..., T], p = softmax(τ logits) with the largest τ in [0, 1] for which KL(p ‖ uniform) <= ρ.

    BanditMTL's step (Mao et al., ACL 2021), τ = 1/(1 + η λ). NaN where a logit is not finite.

    Args:
        logits: The logits [..., T].
        radius: The radius ρ > 0 [...].
    """
    values = to_numpy(logits)
    finite = np.isfinite(values).all(-1, keepdims=True)
    values = np.where(finite, values, 0.0)
    values = values - values.max(-1, keepdims=True)

    log_p = log_softmax(values, axis=-1)
    outside = _divergence(log_p) > to_numpy(radius)

    if outside.any():
        factors = np.where(outside, _temper(values, to_numpy(radius)), 1.0)
        log_p = log_softmax(factors[..., None] * values, axis=-1)

    return torch.from_numpy(np.where(finite, log_p, np.nan)).to(logits)


def _divergence(log_p: Array) -> Array:
    """Return KL(p ‖ uniform) [...] from log p [..., T]."""
    result: Array = (np.exp(log_p) * log_p).sum(-1) + math.log(log_p.shape[-1])
    return result


def _temper(logits: Array, radius: Array) -> Array:
    """Return the τ in [0, 1] [...] with KL(softmax(τ logits) ‖ uniform) = radius, where it exists."""
    low, high = np.zeros(logits.shape[:-1]), np.ones(logits.shape[:-1])
    spread = logits.std(-1)
    factor = np.minimum(1.0, np.sqrt(2.0 * radius) / np.where(spread > 0.0, spread, 1.0))
    goal = np.sqrt(radius)

    # Newton's method on √KL, nearly linear for small τ; bisect where a step leaves the bracket.
    for _ in range(200):
        log_p = log_softmax(factor[..., None] * logits, axis=-1)
        share = np.exp(log_p)
        root = np.sqrt(_divergence(log_p).clip(min=0.0))
        above = root > goal
        low, high = np.where(above, low, factor), np.where(above, factor, high)

        centred = logits - (share * logits).sum(-1, keepdims=True)
        slope = factor * (share * centred**2).sum(-1)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            stepped = factor - (root - goal) * 2.0 * root / slope

        inside = (stepped > low) & (stepped < high)
        moved = np.where(inside, stepped, 0.5 * (low + high))
        if not (np.abs(moved - factor) > 1e-15 * factor).any():
            break
        factor = moved

    return factor
