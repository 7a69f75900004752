"""DualProj: the dual projection of gradient episodic memory (GEM)."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.solvers import dual_projection_weights


class DualProj(GramianBalancer):
    """The mean gradient, projected onto the directions that no task loses by.

    Source: Lopez-Paz, Ranzato (NeurIPS 2017), eq. 11: the problem of GEM, with the mean gradient in place of the
    current task's. As TorchJD's DualProj, without its regularisation of the Gramian.
    """

    name: ClassVar[str] = "dual_proj"
    source: ClassVar[str] = "Lopez-Paz & Ranzato, NeurIPS 2017, eq. 11"
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
        solution = dual_projection_weights(gramian, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
