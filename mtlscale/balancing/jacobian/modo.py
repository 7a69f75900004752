"""MoDo: multi-objective gradient descent with double sampling."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing.contract import State, ValidationBalancer
from mtlscale.config import knob


class MoDo(ValidationBalancer):
    """Min-norm weights that follow the products of gradients of two independent batches.

    Source: Chen et al. (JMLR 2024): w is projected onto the simplex after a step of -γ(J₁J₂ᵀw + ρw). The two batches
    come from disjoint halves of the training data, both at the same parameters; the step is taken on the first, where
    the authors take it on their mean or on a third.
    """

    name: ClassVar[str] = "modo"
    source: ClassVar[str] = "Chen et al., JMLR 2024, eq. 2.9"
    cost: ClassVar[str] = "2T backwards"
    # weights sum to 1 over the tasks of the step; products of gradients added up in pieces
    results_version: ClassVar[int] = 2
    per_task: ClassVar[tuple[str, ...]] = ("weights",)

    eta: float = knob(0.0, choices=(0.0,), help="no look-ahead: both gradients are of the same parameters")
    gamma: float = knob(1e-3, low=0, open_low=True, search=(1e-4, 1.0, "log"), help="γ, the weights' step size")
    rho: float = knob(0.1, low=0, search=(1e-3, 1.0, "log"), help="ρ, the pull toward equal weights")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"weights": torch.full((*batch, tasks), 1.0 / tasks, dtype=torch.float64)}

    def lookahead(self, state: State) -> Tensor:
        return _mass.shares(state["weights"])

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        weights = state["weights"]
        # The rows are of the second batch: its transpose is J₁J₂ᵀ.
        slope = torch.einsum("...st,...s->...t", gramian.to(weights), weights) + self.rho * weights
        shares, weights = _mass.project(weights, -self.gamma * slope)
        return shares.to(losses), {**state, "weights": weights}
