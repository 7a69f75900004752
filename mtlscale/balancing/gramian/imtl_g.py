"""IMTL-G: impartial multi-task learning by the gradients."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.solvers import imtl_g_weights


class IMTLG(GramianBalancer):
    """The direction whose projections on all task gradients are equal.

    Source: Liu et al., "Towards Impartial Multi-task Learning" (ICLR 2021), gradient balance. As TorchJD's
    IMTLGWeighting for independent gradients; the gradients' precision decides whether they are. The weights sum to 1,
    so that the update points uphill where their sum was negative. `failures` counts these steps, and those in which no
    such direction exists.
    """

    name: ClassVar[str] = "imtl_g"
    source: ClassVar[str] = "Liu et al., ICLR 2021, gradient balance"
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    # heads by the tasks of the step; tasks at rest are left out; a negative sum of weights is a failure
    results_version: ClassVar[int] = 3
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = imtl_g_weights(gramian, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
