"""GO4Align: group optimisation for task alignment."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob
from mtlscale.solvers import group_means

_FLOOR = 1e-12


class GO4Align(Balancer):
    """Weights that bring losses to one scale, shared within groups of tasks that are alike.

    Source: Shen et al. (NeurIPS 2024) and their code. p follows p exp(-η ℓ), normalised; v_t = p_t Σ_s ℓ_s / ℓ_t; ω_t
    is the mean of v in the task's group of a one-dimensional k-means. The grouping is exact, where the authors' starts
    from random centres.
    """

    name: ClassVar[str] = "go4align"
    source: ClassVar[str] = "Shen et al., NeurIPS 2024"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    positive_losses: ClassVar[bool] = True
    per_task: ClassVar[tuple[str, ...]] = ("log_weights",)
    batchable: ClassVar[bool] = True

    lr: float = knob(1e-4, low=0, search=(1e-5, 1e-1, "log"), help="η, how fast p leaves tasks of large losses")
    groups: int = knob(2, low=1, search=(1, 2, 3, 5), help="number of groups; with as many as tasks, none share")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"log_weights": torch.full((*batch, tasks), -math.log(tasks), dtype=torch.float64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        log_weights = torch.log_softmax(state["log_weights"] - self.lr * losses, dim=-1)
        after = log_weights + _mass.log_of(state["log_weights"])
        values = log_weights.exp() * losses.sum(-1, keepdim=True) / losses.clamp(min=_FLOOR)
        return group_means(values, self.groups).to(losses), {**state, "log_weights": after}
