"""ConFIG: conflict-free inverse gradients."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.solvers import config_weights


class ConFIG(GramianBalancer):
    """The direction of equal cosines with all task gradients, as long as their projections on it together.

    Source: Liu, Chu, Thuerey (ICLR 2025), eq. 2. As TorchJD's ConFIG for independent gradients; the gradients'
    precision decides whether they are. It is the direction of `imtl_g` with another length. `failures` counts the steps
    in which no such direction exists.
    """

    name: ClassVar[str] = "config"
    source: ClassVar[str] = "Liu et al., ICLR 2025, eq. 2"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T backwards"
    heads = "sum"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = config_weights(gramian, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
