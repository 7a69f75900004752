"""FairGrad: fair resource allocation among tasks."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import fair_weights


class FairGrad(GramianBalancer):
    """The α-fair weights: the w > 0 with K w = w^(-1/α).

    α = 1 is Nash-MTL without its norm limit.

    Source: Ban, Ji (ICML 2024), eq. 4. A convex problem solved by Newton's method; the authors' code and TorchJD call
    scipy's least_squares. `failures` counts the steps at Pareto-stationary points, where no solution exists. One task
    weighs 1.
    """

    name: ClassVar[str] = "fairgrad"
    source: ClassVar[str] = "Ban & Ji, ICML 2024, eq. 4"
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    # heads by the tasks of the step; tasks at rest are left out; products of gradients added up in pieces
    results_version: ClassVar[int] = 3
    batchable: ClassVar[bool] = True

    alpha: float = knob(2.0, low=0, open_low=True, search=(0.5, 10.0, "log"), help="fairness; large: max-min")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = fair_weights(gramian, self.alpha, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
