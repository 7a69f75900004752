"""LDC-MTL: loss discrepancy control."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import state_adam as _adam
from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob

_TIED = 1e-9  # gaps this small, relative to the losses, count as none


class LDCMTL(Balancer):
    """Weights learned to bring neighbouring tasks' weighted losses together, with the losses themselves.

    Source: Xiao et al., "LDC-MTL" (2025) and their code. Network and logits descend Σ a_t + λ Σ |a_t - a_{t+1}|, a_t =
    σ_t ℓ_t / r_t, σ the softmax of the logits, r_t the task's first loss above 0 over the smallest. The authors' logits
    come from a router that reads the features and moves with the network's optimiser; here they are one vector that
    moves by Adam. The order of the tasks matters, and weights may be negative for λ > ½.
    """

    name: ClassVar[str] = "ldc_mtl"
    source: ClassVar[str] = "Xiao et al., 2025 (LDC-MTL)"
    positive_losses: ClassVar[bool] = True
    results_version: ClassVar[int] = 2  # a task waits for its first loss above 0
    per_task: ClassVar[tuple[str, ...]] = ("logits", "first_losses", *_adam.PER_TASK)
    batchable: ClassVar[bool] = True

    lam: float = knob(0.05, low=0, search=(1e-3, 1.0, "log"), help="λ, the weight of the discrepancies")
    lr: float = knob(1e-3, low=0, open_low=True, search=(1e-4, 1e-1, "log"), help="step size of the logits")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            "logits": torch.zeros(*batch, tasks, dtype=torch.float64),
            "first_losses": torch.zeros(*batch, tasks, dtype=torch.float64),  # 0: not known yet
            **_adam.start(tasks, batch),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        first = torch.where(state["first_losses"] > 0, state["first_losses"], losses.to(state["first_losses"]))
        has_loss = first > 0
        ratios = torch.where(has_loss, first / torch.where(has_loss, first, torch.inf).amin(-1, keepdim=True), 1.0)
        shares = torch.softmax(state["logits"], dim=-1)

        parts = losses / ratios
        gaps = (shares * parts).diff(dim=-1)
        # In the first step all are equal but for rounding, which must not decide.
        tied = gaps.abs() <= _TIED * parts.amax(-1, keepdim=True)
        zero = torch.zeros_like(shares[..., :1])
        edges = torch.cat([zero, torch.where(tied, 0.0, gaps.sign()), zero], dim=-1)  # signs of a_{t+1} - a_t
        slopes = 1.0 + self.lam * (edges[..., :-1] - edges[..., 1:])  # of the objective in a_t

        costs = parts * slopes
        slope = shares * (costs - (shares * costs).sum(-1, keepdim=True))
        change, after = _adam.step(state, slope, self.lr, active=slope.isfinite().all(-1))
        weights = shares * slopes / ratios
        return weights.to(losses), {**after, "logits": state["logits"] + change, "first_losses": first}
