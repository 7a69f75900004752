"""Dropout whose rate is a tensor and whose random numbers may come from outside.

Trials with different rates can therefore run as one batched model and still drop the entries that each would drop
alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

# Uniform numbers for the modules of a forward pass in the order in which they run, instead of the global generator's.
_DRAWS: ContextVar[Iterator[Tensor] | None] = ContextVar("draws", default=None)


@contextmanager
def fixed_draws(numbers: Iterator[Tensor]) -> Iterator[None]:
    """Take the uniform numbers of all active dropout modules in the block from `numbers`, each of its input's shape."""
    token = _DRAWS.set(numbers)
    try:
        yield
    finally:
        _DRAWS.reset(token)


class Dropout(nn.Module):
    """Dropout layer that compares uniform numbers with its `rate` in training.

    Entries whose number lies below the rate become zero; the others are divided by 1 - rate.
    """

    rate: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.register_buffer("rate", torch.tensor(float(rate)), persistent=False)
        self.active = rate > 0  # an inactive module draws nothing

    def forward(self, inputs: Tensor) -> Tensor:
        if not (self.training and self.active):
            return inputs
        numbers = _DRAWS.get()
        if numbers is None:
            uniform = torch.rand(inputs.shape, dtype=inputs.dtype, device=inputs.device)
        else:
            uniform = next(numbers)
        return torch.where(uniform >= self.rate, inputs / (1.0 - self.rate), 0.0)

    def extra_repr(self) -> str:
        return f"rate={float(self.rate):g}"
