"""FAMO: fast adaptive multi-task optimisation."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import state_adam as _adam
from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob

_FLOOR = 1e-8  # added to a loss before its logarithm, as in the authors' code


class FAMO(Balancer):
    """Weights under which all losses fall at the same rate, judged by each logarithm's change over a step.

    Source: Liu et al. (NeurIPS 2023) and their code, with minimal losses of 0. ω_t is proportional to softmax(ξ)_t /
    ℓ_t and sums to 1. The same batch's losses after the step show how far each loss fell; the fall's derivative through
    the softmax goes to Adam with weight decay on ξ. Losses that are not finite after the step leave ξ as it is.
    """

    name: ClassVar[str] = "famo"
    source: ClassVar[str] = "Liu et al., NeurIPS 2023"
    positive_losses: ClassVar[bool] = True
    results_version: ClassVar[int] = 3  # tasks at rest are left out
    cost: ClassVar[str] = "1 backward + 1 forward"
    per_task: ClassVar[tuple[str, ...]] = ("logits", "log_losses", *_adam.PER_TASK)
    needs_post_step_losses: ClassVar[bool] = True
    batchable: ClassVar[bool] = True

    lr: float = knob(0.025, low=0, open_low=True, search=(1e-3, 1e-1, "log"), help="step size of the logits")
    weight_decay: float = knob(1e-3, low=0, search=(1e-5, 1e-2, "log"), help="decay of the logits")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            "logits": torch.zeros(*batch, tasks, dtype=torch.float64),
            "log_losses": torch.full((*batch, tasks), torch.nan, dtype=torch.float64),
            **_adam.start(tasks, batch),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        log_losses = (losses + _FLOOR).log()
        weights = torch.softmax(state["logits"] - log_losses, dim=-1)
        return weights.to(losses), {**state, "log_losses": log_losses}

    def after_step(self, losses: Tensor, state: State) -> State:
        logits = state["logits"]
        shares = torch.softmax(logits, dim=-1)
        fall = state["log_losses"] - (losses + _FLOOR).log()
        slope = shares * (fall - (shares * fall).sum(-1, keepdim=True)) + self.weight_decay * logits
        change, after = _adam.step(state, slope, self.lr, active=fall.isfinite().all(-1))
        return {**after, "logits": logits + change}
