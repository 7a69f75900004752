"""Proximal operators of TOMATO's penalties (Zhang & Lee, CIKM 2020).

Groups are rows θ[k, t] of a [K, T, P] tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor


def prox_element(theta: Tensor, step: float | Tensor) -> Tensor:
    """Return argmin of ‖Θ - theta‖²/(2 step) + Σ_kt ‖Θ_kt‖, [..., K, T, P].

    Args:
        theta: The point [..., K, T, P].
        step: The step size [...].
    """
    norms = _norms(theta)
    return _shrink(theta, norms, _step(theta, step))


def prox_exclusive(theta: Tensor, step: float | Tensor) -> Tensor:
    """Return argmin of ‖Θ - theta‖²/(2 step) + ½ Σ_k (Σ_t ‖Θ_kt‖)², [..., K, T, P].

    Args:
        theta: The point [..., K, T, P].
        step: The step size [...].
    """
    norms = _norms(theta)
    counts = torch.arange(1, norms.shape[-1] + 1, dtype=norms.dtype, device=norms.device)
    sums = norms.sort(dim=-1, descending=True).values.cumsum(-1)
    threshold = (sums / (1.0 / _step(theta, step) + counts)).amax(-1, keepdim=True)
    return _shrink(theta, norms, threshold)


def _norms(theta: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(theta, dim=-1, dtype=torch.float64)
    return norms


def _step(theta: Tensor, step: float | Tensor) -> Tensor:
    """Return the step as float64 that broadcasts against norms [..., K, T]."""
    if not isinstance(step, Tensor):
        step = torch.full((), step, dtype=torch.float64, device=theta.device)  # made on that device: nothing is copied
    return step.to(theta.device, torch.float64)[..., None, None]


def _shrink(theta: Tensor, norms: Tensor, threshold: Tensor) -> Tensor:
    factors = torch.where(norms > threshold, 1.0 - threshold / norms, 0.0)
    return factors.unsqueeze(-1).to(theta.dtype) * theta
