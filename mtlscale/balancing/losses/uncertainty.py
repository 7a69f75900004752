"""Homoscedastic uncertainty weighting (UW)."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob


class Uncertainty(Balancer):
    """Loss weights from learned log-variances s_t: ω_t = ½ exp(-s_t), s minimising Σ ½(exp(-s_t) ℓ_t + s_t).

    Source: Kendall, Gal, Cipolla (CVPR 2018), UW, in one form for all tasks. s starts at 0 and descends its objective
    after each step, by at most 1 per step, so that losses of any size leave it finite. TorchJD's UW hands s to the
    model's optimiser instead. One task weighs 1. A loss that stays negative has no best s: its weight keeps growing.
    """

    name: ClassVar[str] = "uncertainty"
    source: ClassVar[str] = "Kendall et al., CVPR 2018"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    positive_losses: ClassVar[bool] = True
    takes_negative: ClassVar[bool] = True
    per_task: ClassVar[tuple[str, ...]] = ("log_variance",)
    batchable: ClassVar[bool] = True

    lr: float = knob(0.01, low=0, open_low=True, search=(1e-3, 1e-1, "log"), help="step size of the log-variances")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"log_variance": torch.zeros(*batch, tasks, dtype=torch.float64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if losses.shape[-1] == 1:
            return torch.ones_like(losses), state
        log_variance = state["log_variance"]
        precision = torch.exp(-log_variance)
        slope = 0.5 * (1.0 - precision * losses)
        step = (self.lr * slope).clamp(-1.0, 1.0)
        return (0.5 * precision).to(losses), {**state, "log_variance": log_variance - step}
