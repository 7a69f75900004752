"""Gradients of losses after a step that depends on what chooses, as in DARTS' second order.

With θ' = θ − η (μ b + ∇_θ ℓ(θ, α) + λ θ), the gradient of L(θ', α) by α is ∇_α L − η ∇²_αθ ℓ · v, v = ∇_θ' L. The
product is a difference of ∇_α ℓ at θ ± r v with r = 0.01 / ‖v‖.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

RADIUS = 0.01
Closure = Callable[[Sequence[Tensor]], list[Tensor]]  # parameters -> gradients of a loss by them, zeros where none


@dataclass(frozen=True)
class Step:
    """How the optimiser moves each parameter: its learning rate, momentum, weight decay and momentum's buffer."""

    parameter: Tensor
    lr: float
    momentum: float
    decay: float
    buffer: Tensor | None


def steps_of(optimizer: torch.optim.Optimizer) -> list[Step]:
    """Of an SGD."""
    return [
        Step(p, group["lr"], group["momentum"], group["weight_decay"], optimizer.state[p].get("momentum_buffer"))
        for group in optimizer.param_groups
        for p in group["params"]
    ]


@torch.no_grad()
def look_ahead(steps: Sequence[Step], gradients: Sequence[Tensor]) -> None:
    """Move the parameters as the next step would."""
    for step, gradient in zip(steps, gradients, strict=True):
        move = gradient + step.decay * step.parameter
        if step.buffer is not None:
            move = move + step.momentum * step.buffer
        step.parameter.sub_(step.lr * move)


@contextmanager
def unmoved(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Whatever they are moved to within, afterwards they are where they were."""
    before = [p.detach().clone() for p in parameters]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, before, strict=True):
                parameter.copy_(value)


def hessian_product(
    closure: Closure, parameters: Sequence[Tensor], choices: Sequence[Tensor], along: Sequence[Tensor]
) -> list[Tensor]:
    """∇²_αθ ℓ · v for what `closure` differentiates; along: v by parameter. Zeros where v is."""
    norm = torch.stack([v.to(torch.float64).square().sum() for v in along]).sum().sqrt()
    radius, found = RADIUS / torch.where(norm > 0, norm, 1.0), []
    with unmoved(parameters):
        for move in (radius, -2 * radius):
            with torch.no_grad():
                for parameter, v in zip(parameters, along, strict=True):
                    parameter += move * v
            found.append(closure(choices))
    return [(one - other) / (2 * radius) for one, other in zip(*found, strict=True)]
