"""Soft actor-critic in formulas (Haarnoja et al., 2018): pure functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

LOG_STD = (-20.0, 2.0)  # between which the policy's deviation stays


def squashed(given: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions tanh(μ + σ ε) [..., A] and their log densities [...], of a policy's outputs [..., 2 A] (μ, log σ) and
    standard normal ε [..., A]."""
    mean, log_std = given.chunk(2, -1)
    log_std = log_std.clamp(*LOG_STD)
    u = mean + log_std.exp() * noise
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh² u) without the digits that 1 - tanh² loses where actions are near the edge
    volume = 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))
    return u.tanh(), (density - volume).sum(-1)


def target_values(rewards: Tensor, next_q: Tensor, next_log: Tensor, alpha: Tensor, discount: float) -> Tensor:
    """r + γ (min over critics of Q(s', a') − α log π(a'|s')). rewards, next_log [T, B]; next_q [critics, T, B]; alpha
    [T]. Episodes end by their horizon alone, so every state has a next one."""
    return rewards + discount * (next_q.amin(0) - alpha.unsqueeze(-1) * next_log)


def critic_loss(q: Tensor, wanted: Tensor) -> Tensor:
    """[T, B]: squared errors, summed over critics [critics, T, B]."""
    return (q - wanted).square().sum(0)


def actor_loss(q: Tensor, log: Tensor, alpha: Tensor) -> Tensor:
    """[T, B]: α log π(a|s) − min over critics of Q(s, a)."""
    return alpha.unsqueeze(-1) * log - q.amin(0)


def temperature_loss(log_alpha: Tensor, log: Tensor, entropy: float) -> Tensor:
    """[T, B]: −log α (log π + wanted entropy), whose gradient raises α where the policy has less entropy."""
    return -log_alpha.unsqueeze(-1) * (log + entropy).detach()


@torch.no_grad()
def follow(targets: Iterable[Tensor], sources: Iterable[Tensor], rate: float) -> None:
    """target += τ (source − target), in place."""
    for target, source in zip(targets, sources, strict=True):
        target.lerp_(source, rate)
