"""Random numbers as a function of the state, so that a balancer stays pure, resumable and equal on every worker."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mtlscale.balancing.contract import State

_MASK = (1 << 64) - 1


def start(seed: int, batch: tuple[int, ...]) -> State:
    """Return the entries `seed` and `step` (int64, [batch]) of a state that draws random numbers."""
    return {
        "seed": torch.full(batch, seed, dtype=torch.int64),
        "step": torch.zeros(batch, dtype=torch.int64),
    }


def advance(state: State) -> State:
    """Return the state whose next draws are new ones."""
    return {**state, "step": state["step"] + 1}


def draw(state: State, make: Callable[[torch.Generator], Tensor]) -> Tensor:
    """Call `make` once per trial with the trial's own generator, and stack the results.

    The results are stacked over the leading dimensions of `seed`. The numbers depend on seed and step alone: not on the
    worker or on the other trials of a batch.
    """
    if not state["seed"].ndim:
        return make(generator(state, torch.device("cpu")))
    trials = zip(state["seed"].unbind(), state["step"].unbind(), strict=True)
    return torch.stack([draw({"seed": seed, "step": step}, make) for seed, step in trials])


def orders(state: State, like: Tensor) -> Tensor:
    """Draw a random permutation per task, in the shape [..., T, T] of `like`."""
    tasks = like.shape[-1]

    def permutations(generator: torch.Generator) -> Tensor:
        return torch.stack([torch.randperm(tasks, generator=generator) for _ in range(tasks)])

    return draw(state, permutations).expand(like.shape)


def generator(state: State, device: torch.device) -> torch.Generator:
    """Return a generator on `device` for a state without leading dimensions."""
    return torch.Generator(device).manual_seed(_mix(int(state["seed"]), int(state["step"])))


def _mix(seed: int, step: int) -> int:
    """Hash seed and step with splitmix64: neighbouring seeds and steps give unrelated generators."""
    value = seed & _MASK
    for part in (0, step):
        value = (value + part + 0x9E3779B97F4A7C15) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value >> 1
