"""The formulas of soft actor-critic (Haarnoja et al., 2018), as pure functions of tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn import functional

LOG_STD = (-20.0, 2.0)  # bounds of the policy's log deviation


def squashed(outputs: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Return actions tanh(μ + σ ε) [..., A] and their log densities [...].

    Args:
        outputs: Outputs [..., 2 A] of a policy, (μ, log σ).
        noise: Standard normal ε [..., A].
    """
    mean, log_std = outputs.chunk(2, -1)
    log_std = log_std.clamp(*LOG_STD)
    u = mean + log_std.exp() * noise
    density = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    # This is log(1 - tanh² u), without the digits that 1 - tanh² loses for actions near ±1.
    volume = 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))
    return u.tanh(), (density - volume).sum(-1)


def target_values(rewards: Tensor, next_q: Tensor, next_log: Tensor, alpha: Tensor, discount: float) -> Tensor:
    """Return r + γ (min over critics of Q(s', a') − α log π(a'|s')), [T, B].

    Only the horizon ends an episode, so every state has a next one.

    Args:
        rewards: Rewards r, [T, B].
        next_q: Values Q(s', a') of each critic, [critics, T, B].
        next_log: Log densities log π(a'|s'), [T, B].
        alpha: Temperatures α, [T].
        discount: The discount γ.
    """
    return rewards + discount * (next_q.amin(0) - alpha.unsqueeze(-1) * next_log)


def critic_loss(q: Tensor, target: Tensor) -> Tensor:
    """Return squared errors [T, B], summed over the critics of q [critics, T, B]."""
    return (q - target).square().sum(0)


def actor_loss(q: Tensor, log: Tensor, alpha: Tensor) -> Tensor:
    """Return α log π(a|s) − min over critics of Q(s, a), [T, B]."""
    return alpha.unsqueeze(-1) * log - q.amin(0)


def temperature_loss(log_alpha: Tensor, log: Tensor, entropy: float) -> Tensor:
    """Return −log α (log π + target entropy), [T, B].

    Its gradient raises α while the policy has less entropy than the target.
    """
    return -log_alpha.unsqueeze(-1) * (log + entropy).detach()


@torch.no_grad()
def polyak_update(targets: Iterable[Tensor], sources: Iterable[Tensor], rate: float) -> None:
    """Move the targets towards the sources, in place: target += τ (source − target)."""
    for target, source in zip(targets, sources, strict=True):
        target.lerp_(source, rate)
