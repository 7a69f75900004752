"""Task gradients of every rank, conflict and scale for property tests: what a balancer may meet."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from mtlscale.testing.gradients import KINDS, gradients
from mtlscale.testing.gradients import permutation as permutation

few = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def jacobians(draw: st.DrawFn, min_tasks: int = 2, max_tasks: int = 50, kinds: tuple[str, ...] = KINDS) -> Tensor:
    """J [T, P], float64: P from 1 to 2T, entries of size 1e-12 to 1e12."""
    tasks = draw(st.integers(min_tasks, min(max_tasks, 8)) | st.integers(min_tasks, max_tasks))
    parameters = draw(st.integers(1, 2 * tasks))
    kind = draw(st.sampled_from(kinds))
    scale = 10.0 ** draw(st.sampled_from((-12, -3, 0, 3, 12)))
    return gradients(kind, tasks, parameters, scale=scale, seed=draw(st.integers(0, 2**32)))


def relative(difference: Tensor, scale: Tensor | float) -> float:
    """The largest entry of `difference` in units of `scale`."""
    return float(difference.abs().max() / max(float(scale), 1e-300))


def single_precision(kind: str, seed: int, parameters: int) -> tuple[Tensor, Tensor]:
    """Linearly dependent gradients [T, P] in float64, and the same in float32, where a sum is rounded."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "rank 3 of 5":
        basis = torch.randn(3, parameters, dtype=torch.float64, generator=generator)
        exact = torch.randn(5, 3, dtype=torch.float64, generator=generator) @ basis
        return exact, exact.float()
    basis = torch.randn(2, parameters, dtype=torch.float64, generator=generator)
    if kind == "an uneven sum":
        basis[1] *= 30.0
    single = basis.float()
    return torch.cat([basis, basis.sum(0, keepdim=True)]), torch.cat([single, single.sum(0, keepdim=True)])
