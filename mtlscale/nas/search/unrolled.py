"""Gradients of losses after a step that depends on the architecture parameters, as in DARTS' second order.

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
# Parameters -> gradients of a loss by them, zeros if there are none.
Closure = Callable[[Sequence[Tensor]], list[Tensor]]


@dataclass(frozen=True)
class Step:
    """The optimiser's step on a parameter: learning rate, momentum, weight decay and momentum buffer."""

    parameter: Tensor
    lr: float
    momentum: float
    decay: float
    buffer: Tensor | None


def steps_of(optimizer: torch.optim.Optimizer) -> list[Step]:
    """Return the steps of an SGD optimiser."""
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
    """Restore the parameters at the end of the context, wherever they are moved within."""
    values = [p.detach().clone() for p in parameters]
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(value)


def hessian_product(
    closure: Closure, parameters: Sequence[Tensor], choices: Sequence[Tensor], along: Sequence[Tensor]
) -> list[Tensor]:
    """Return ∇²_αθ ℓ · v for the loss that `closure` differentiates; zeros where v is zero.

    Args:
        closure: Parameters -> gradients of the loss by them.
        parameters: The weights θ.
        choices: The architecture parameters α.
        along: The direction v, by weight.
    """
    norm = torch.stack([v.to(torch.float64).square().sum() for v in along]).sum().sqrt()
    radius, gradients = RADIUS / torch.where(norm > 0, norm, 1.0), []
    with unmoved(parameters):
        for move in (radius, -2 * radius):
            with torch.no_grad():
                for parameter, v in zip(parameters, along, strict=True):
                    parameter += move * v
            gradients.append(closure(choices))
    return [
        (forward_gradient - backward_gradient) / (2 * radius)
        for forward_gradient, backward_gradient in zip(*gradients, strict=True)
    ]
