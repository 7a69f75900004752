"""UPGrad: unconflicting projection of gradients."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.solvers import upgrad_weights


class UPGrad(GramianBalancer):
    """The mean of all task gradients, each first projected onto the directions that no task loses by.

    Source: Quinton, Rey, "Jacobian Descent for Multi-Objective Optimization" (2024). Exact projections, where TorchJD's
    UPGradWeighting regularises the Gramian by 1e-4 and needs quadprog.
    """

    name: ClassVar[str] = "upgrad"
    source: ClassVar[str] = "Quinton & Rey, arXiv 2406.16232, 2024, eq. 3"
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 2
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = upgrad_weights(gramian, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
