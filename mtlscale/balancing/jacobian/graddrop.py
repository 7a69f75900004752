"""GradDrop: gradient sign dropout."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import stateless_random as _random
from mtlscale.balancing.contract import JacobianBalancer, State
from mtlscale.config import knob


class GradDrop(JacobianBalancer):
    """The sum of only the positive or only the negative gradients per coordinate, drawn by which outweigh.

    Source: Chen et al. (NeurIPS 2020), Algorithm 1. As TorchJD's GradDrop, with draws from the run's seed on the
    gradients' device, and with 0 at coordinates without any gradient (there: NaN).
    """

    name: ClassVar[str] = "graddrop"
    source: ClassVar[str] = "Chen et al., NeurIPS 2020, Algorithm 1"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    cost: ClassVar[str] = "T backwards, T x P memory"

    on_host: ClassVar[tuple[str, ...]] = ("seed", "step")

    leak: float = knob(0.0, low=0, high=1, search=(0.0, 0.5, "linear"), help="part of the dropped gradients that stays")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return _random.start(seed, batch)

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        generator = _random.generator(state, jacobian[0].device)
        result = []
        for gradients in jacobian:
            total, magnitude = gradients.sum(0), gradients.abs().sum(0)
            purity = 0.5 * (1.0 + total / torch.where(magnitude > 0, magnitude, 1.0))
            threshold = torch.rand(purity.shape, dtype=purity.dtype, device=purity.device, generator=generator)
            one_sign_sum = torch.where(purity > threshold, gradients.clamp(min=0), gradients.clamp(max=0)).sum(0)
            result.append(self.leak * total + (1.0 - self.leak) * one_sign_sum)
        return result, _random.advance(state)
