"""MetaWeighting: loss weights by bilevel optimisation."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing.contract import State, ValidationBalancer
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import solve_min_norm


class MetaWeighting(ValidationBalancer):
    """Weights that lower all query losses after a look-ahead step, by MGDA in the space of weights.

    Source: Mao et al. (Findings of ACL 2022). Called with the query losses q_t(θ') [..., T] and the cross Gramian
    C[t, s] = ⟨∇q_t(θ'), g_s(θ)⟩ at the look-ahead θ' = θ - η Σ_s v_s g_s, v = `lookahead(state)`. The gradients g_s
    (support) and the losses q_t (query) come from disjoint halves of the training data: no sample is ever in both.
    First order in θ. Tasks without labels keep their share of v; the others move within their own.
    """

    name: ClassVar[str] = "meta_weighting"
    source: ClassVar[str] = "Mao et al., Findings of ACL 2022"
    cost: ClassVar[str] = "2T backwards"
    # the look-ahead's weights sum to 1 over the tasks of the step; products of gradients added up in pieces
    results_version: ClassVar[int] = 3
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    per_task: ClassVar[tuple[str, ...]] = ("weights",)

    eta: float = knob(0.1, low=0, open_low=True, search=(1e-3, 1.0, "log"), help="η, the look-ahead's learning rate")
    lr: float = knob(0.1, low=0, open_low=True, search=(1e-3, 1.0, "log"), help="η_v, the weights' step size")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        weights = torch.full((*batch, tasks), 1.0 / tasks, dtype=torch.float64)
        return {"weights": weights, **counters(batch, "failures")}

    def lookahead(self, state: State) -> Tensor:
        return _mass.shares(state["weights"])

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        hypergradients = -self.eta * gramian.to(torch.float64)
        solution = solve_min_norm(hypergradients @ hypergradients.mT)
        parts = solution.weights.unsqueeze(-1) * hypergradients
        common = parts.sum(-2)
        # Where the parts cancel, the remainder is rounding: the point is Pareto stationary in the weights.
        rounding = 1e-10 * parts.abs().sum((-2, -1)).unsqueeze(-1)
        common = torch.where(common.abs() <= rounding, 0.0, common)
        shares, weights = _mass.project(state["weights"], -self.lr * common)
        return shares.to(losses), count({**state, "weights": weights}, failures=~solution.converged)
