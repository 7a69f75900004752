"""MRN: correlated weights of tasks."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.objectives.contract import Objective, ObjectiveModule
from mtlscale.objectives.penalties._task_parameters import alike


class MRN(Objective):
    """Multilinear relationship network: a tensor-normal prior on the tasks' weights, with covariances fitted to them.

    Each weight matrix that all tasks have is a tensor W [T, D₁, D₂] with the penalty c/2 wᵀ(Σ_T ⊗ Σ₁ ⊗ Σ₂)⁻¹w. Every
    `every` steps a flip-flop pass fits the covariances; they start at identities. They are scaled to the identity's
    trace, so that c means the same before and after the first fit. `trace: one` scales to unit trace, which from the
    first fit on is the same with c times D₁D₂T. ε is relative to the mean variance; with a smaller ε, SGD soon becomes
    unstable.
    """

    name: ClassVar[str] = "mrn"
    source: ClassVar[str] = "Long et al., NeurIPS 2017; as in Zhang & Lee, CIKM 2020"
    architecture: ClassVar[str] = "shared_bottom"

    strength: float = knob(1e-4, low=0.0, search=(0.0, 1e-5, 1e-4, 1e-3, 1e-2), help="c")
    every: int = knob(100, low=1, search=(30, 100), help="steps between two fits of the covariances")
    ridge: float = knob(0.1, low=0.0, open_low=True, help="ε on a covariance's diagonal, relative to its mean")
    trace: str = knob("size", choices=("size", "one"), help="what covariances are scaled to")

    def build(self, suite: TaskSuite, model: MultiTaskModule) -> ObjectiveModule:
        return MRNModule(self, alike(self.name, suite, model, least=2))


class MRNModule(ObjectiveModule):
    """Objective with the penalty of a tensor-normal prior, whose covariances it refits every few steps."""

    def __init__(self, settings: MRN, rows: Sequence[tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.settings = settings
        self.rows = rows  # the network's parameters, not this module's
        self.steps = 0
        for layer, row in enumerate(rows):
            for mode, size in enumerate((len(row), *row[0].shape)):
                self.register_buffer(f"factor{layer}{mode}", torch.eye(size, dtype=torch.float64, device=row[0].device))

    def factors(self, layer: int) -> list[Tensor]:
        """Return the Cholesky factors of the covariances of one layer's modes."""
        return [self.get_buffer(f"factor{layer}{mode}") for mode in range(3)]

    def penalty(self) -> Tensor | None:
        values = [whiten(torch.stack(row), self.factors(layer)).square().sum() for layer, row in enumerate(self.rows)]
        return 0.5 * self.settings.strength * torch.stack(values).sum()

    @torch.no_grad()
    def after_step(self, lr: float, sum: Callable[[Tensor], Tensor]) -> None:
        self.steps += 1
        if self.steps % self.settings.every == 0:
            for layer, row in enumerate(self.rows):
                factors = self.factors(layer)
                fitted = flip_flop(torch.stack(row), factors, self.settings.ridge, self.settings.trace == "one")
                for buffer, value in zip(factors, fitted, strict=True):
                    buffer.copy_(value)

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.steps)

    def set_extra_state(self, state: Tensor) -> None:
        self.steps = int(state)


def whiten(weight: Tensor, factors: Sequence[Tensor | None]) -> Tensor:
    """Multiply each mode of a tensor by the inverse of its Cholesky factor.

    Args:
        weight: Tensor [D₀, D₁, …].
        factors: Cholesky factors [D, D] of the modes; None leaves a mode out.
    """
    for mode, factor in enumerate(factors):
        if factor is not None:
            mode_first = weight.movedim(mode, 0)
            flat = torch.linalg.solve_triangular(factor.to(weight.dtype), mode_first.flatten(1), upper=False)
            weight = flat.reshape(mode_first.shape).movedim(0, mode)
    return weight


def flip_flop(weight: Tensor, factors: list[Tensor], ridge: float, unit_trace: bool) -> list[Tensor]:
    """Fit the covariance of each mode anew, given the others, in one pass over the modes.

    Args:
        weight: Tensor [D₀, D₁, …].
        factors: Cholesky factors of the present covariances.
        ridge: Number that is added to a covariance's diagonal, relative to its mean.
        unit_trace: Whether to scale to unit trace, or to the identity's.

    Returns:
        Cholesky factors of the new covariances.
    """
    weight, factors = weight.double(), list(factors)
    for mode in range(weight.ndim):
        other_factors: list[Tensor | None] = [None if m == mode else factor for m, factor in enumerate(factors)]
        flat = whiten(weight, other_factors).movedim(mode, 0).flatten(1)
        covariance = flat @ flat.T / flat.shape[1]
        covariance.diagonal().add_(ridge * covariance.diagonal().mean().clamp(min=1e-12))
        scale = covariance.trace() if unit_trace else covariance.diagonal().mean()
        # No check is needed: weights that are not finite show in the next loss, which reports that the run diverged.
        factors[mode] = torch.linalg.cholesky_ex(covariance / scale).L
    return factors
