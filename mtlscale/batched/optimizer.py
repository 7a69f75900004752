"""Optimisers of torch for many trials at once: the same formulas with a learning rate, decay and momentum per trial.

Every parameter is a tensor [B, ...] of B trials; settings are [B] tensors. What `torch.optim` computes for one trial
comes out for each, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # torch's defaults


class BatchedOptimizer:
    """Adam, AdamW, or SGD with momentum, Nesterov's too, for B trials.

    `weight_decay` and `momentum` are [B]. A parameter whose gradient is None in a step is left as it is.
    """

    def __init__(self, kind: str, weight_decay: Tensor, momentum: Tensor) -> None:
        self.kind, self.weight_decay, self.momentum = kind, weight_decay, momentum
        # Read once: every read makes the host wait for the device.
        self._decays, self._gathers = bool((weight_decay != 0).any()), bool((momentum != 0).any())
        self.steps = 0
        self.first: dict[int, Tensor] = {}  # position of the parameter -> momentum or first moment
        self.second: dict[int, Tensor] = {}

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor | None], lr: Tensor) -> None:
        """Update the parameters in place; `lr` [B] is that of this step."""
        self.steps += 1
        for position, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if gradient is None:
                continue
            if self._decays and self.kind == "adamw":
                parameter.mul_(_broadcastable(1.0 - lr * self.weight_decay, parameter))
            elif self._decays:
                gradient = torch.addcmul(gradient, parameter, _broadcastable(self.weight_decay, parameter))
            if self.kind in ("sgd", "nesterov"):
                self._sgd(position, parameter, gradient, lr)
            else:
                self._adam(position, parameter, gradient, lr)

    def _sgd(self, position: int, parameter: Tensor, gradient: Tensor, lr: Tensor) -> None:
        if self._gathers:
            previous = self.first.get(position)
            if previous is None:
                self.first[position] = gradient.clone()
            else:
                previous.mul_(_broadcastable(self.momentum, parameter)).add_(gradient)
            velocity = self.first[position]
            gradient = (
                velocity if self.kind == "sgd" else gradient + _broadcastable(self.momentum, parameter) * velocity
            )
        parameter.addcmul_(gradient, _broadcastable(lr, parameter), value=-1.0)

    def _adam(self, position: int, parameter: Tensor, gradient: Tensor, lr: Tensor) -> None:
        if position not in self.first:
            self.first[position] = torch.zeros_like(parameter)
            self.second[position] = torch.zeros_like(parameter)
        mean, square = self.first[position], self.second[position]
        mean.lerp_(gradient, 1.0 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
        size = lr / (1.0 - BETA1**self.steps)
        spread = square.sqrt().div_((1.0 - BETA2**self.steps) ** 0.5).add_(EPS)
        parameter.sub_(_broadcastable(size, parameter) * mean.div(spread))

    def keep(self, trials: Tensor) -> None:
        """Keep only the trials at the indices `trials` [B']."""
        self.weight_decay, self.momentum = self.weight_decay[trials], self.momentum[trials]
        for state in (self.first, self.second):
            for position in state:
                state[position] = state[position][trials]


def _broadcastable(setting: Tensor, parameter: Tensor) -> Tensor:
    """Reshape a setting [B] such that it broadcasts against a parameter [B, ...]."""
    return setting.to(parameter.dtype).reshape(-1, *[1] * (parameter.ndim - 1))
