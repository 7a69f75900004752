"""Nash-MTL: multi-task learning as a bargaining game."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import hidden_part, length_bounds, nash_weights


class NashMTL(GramianBalancer):
    """The Nash bargaining solution among tasks: the w > 0 with K w = 1/w, its direction cut to norm `max_norm`.

    Source: Navon et al. (ICML 2022), Algorithm 1. Newton's method finds the fixed point exactly; the authors' code and
    TorchJD run a few convex-concave steps of cvxpy from the last weights. `failures` counts the steps at
    Pareto-stationary points, where no solution exists. One task weighs 1.
    """

    name: ClassVar[str] = "nash_mtl"
    source: ClassVar[str] = "Navon et al., ICML 2022, Algorithm 1"
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 3
    batchable: ClassVar[bool] = True

    max_norm: float = knob(1.0, low=0, search=(0.1, 10.0, "log"), help="largest norm of the direction; 0: no limit")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = nash_weights(gramian, precision=state["precision"])
        weights = solution.weights
        if self.max_norm > 0 and losses.shape[-1] > 1:
            _, longest = length_bounds(weights, gramian, hidden_part(gramian, state["precision"]).to(gramian))
            weights = weights / (longest.unsqueeze(-1) / self.max_norm).clamp(min=1.0)
        return weights.to(losses), count(state, failures=~solution.converged)
