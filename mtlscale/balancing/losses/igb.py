"""IGB: improvable gap balancing."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import Balancer, State

_FLOOR = 1e-12


class IGB(Balancer):
    """Log losses, weighted by how far each loss still is from its base: ω_t = T softmax(ℓ/ℓ_base)_t / ℓ_t.

    Source: Dai et al., "Improvable Gap Balancing" (UAI 2023), version 1. The base is the mean loss of the task's first
    epoch with a loss above 0; until it is known, the task weighs 1/ℓ_t and is not one of the T. One task weighs 1.
    """

    name: ClassVar[str] = "igb"
    source: ClassVar[str] = "Dai et al., UAI 2023, IGBv1"
    positive_losses: ClassVar[bool] = True
    results_version: ClassVar[int] = 2  # a task waits for its first loss above 0
    per_task: ClassVar[tuple[str, ...]] = ("base_losses", "task_scale")
    hints: ClassVar[tuple[str, ...]] = ("task_scale",)
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        unknown = torch.full((*batch, tasks), torch.nan, dtype=torch.float64)
        return {"base_losses": unknown, **_hints.task_scale(tasks, batch)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if losses.shape[-1] == 1:
            return torch.ones_like(losses), state
        base = state["base_losses"]
        has_base = ~base.isnan()
        gaps = torch.where(has_base, losses / state["task_scale"] / base, -torch.inf)
        shares = has_base.sum(-1, keepdim=True) * torch.softmax(gaps, dim=-1)
        return (torch.where(has_base, shares, 1.0) / losses.clamp(min=_FLOOR)).to(losses), state

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        base = state["base_losses"]
        return {**state, "base_losses": torch.where(base.isnan() & (losses > 0), losses.to(base), base)}
