"""Replay of a batch: with the random numbers it had, and without a trace in running statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def random_state(device: torch.device) -> list[Tensor]:
    """Return the states of the random generators of the host and the device."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state(device)] if device.type == "cuda" else states


@contextmanager
def replayed(states: Sequence[Tensor], device: torch.device) -> Iterator[None]:
    """Draw random numbers from `states` on inside the context, and restore the generators on exit.

    So dropout leaves out the same units again.
    """
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.set_rng_state(states[0])
        if device.type == "cuda":
            torch.cuda.set_rng_state(states[1], device)
        yield


@contextmanager
def statistics_kept(model: nn.Module) -> Iterator[None]:
    """Let batch normalisation use a batch's statistics inside the context without updating its running ones."""
    norms = [module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    rates = [module.momentum for module in norms]
    counts = [None if module.num_batches_tracked is None else module.num_batches_tracked.clone() for module in norms]
    for module in norms:
        module.momentum = 0.0
    try:
        yield
    finally:
        for module, rate, count in zip(norms, rates, counts, strict=True):
            module.momentum = rate
            if module.num_batches_tracked is not None and count is not None:
                module.num_batches_tracked.copy_(count)
