"""IMTL-L: impartial multi-task learning by the losses."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob


class IMTLL(Balancer):
    """Learned scales that bring all losses to the same size: ω_t = exp(s_t), s minimising Σ exp(s_t) ℓ_t - s_t.

    Source: Liu et al., "Towards Impartial Multi-task Learning" (ICLR 2021), loss balance. Stationary at s_t = -log ℓ_t.
    s starts at 0 and descends its objective after each step, by at most 1 per step; TorchJD's IMTLL hands s to the
    model's optimiser. One task weighs 1.
    """

    name: ClassVar[str] = "imtl_l"
    source: ClassVar[str] = "Liu et al., ICLR 2021, loss balance"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    positive_losses: ClassVar[bool] = True
    per_task: ClassVar[tuple[str, ...]] = ("log_scale",)
    batchable: ClassVar[bool] = True

    lr: float = knob(0.01, low=0, open_low=True, search=(1e-3, 1e-1, "log"), help="step size of the log-scales")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"log_scale": torch.zeros(*batch, tasks, dtype=torch.float64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if losses.shape[-1] == 1:
            return torch.ones_like(losses), state
        log_scale = state["log_scale"]
        scale = log_scale.exp()
        step = (self.lr * (scale * losses - 1.0)).clamp(-1.0, 1.0)
        return scale.to(losses), {**state, "log_scale": log_scale - step}
