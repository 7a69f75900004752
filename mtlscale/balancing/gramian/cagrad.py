"""CAGrad: conflict-averse gradient descent."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import solve_cagrad


class CAGrad(GramianBalancer):
    """The direction near the average gradient that helps the worst-off task most.

    Source: Liu et al. (NeurIPS 2021), Algorithm 1. Solved by an active-set method on the scaled problem. TorchJD calls
    cvxpy, and returns zero weights where the worst direction is shorter than 1e-4; where that direction vanishes, the
    update here is the point nearest to the average at which the worst-off task is best off. The update stays in the
    ball whatever the gradients' precision.
    """

    name: ClassVar[str] = "cagrad"
    source: ClassVar[str] = "Liu et al., NeurIPS 2021, Algorithm 1"
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 2
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    c: float = knob(
        0.5,
        low=0,
        high=1,
        open_high=True,
        search=(0.1, 0.9, "linear"),
        help="radius of the ball over ‖g₀‖",
    )
    rescale: int = knob(0, choices=(0, 1, 2), help="0 none, 1 divide by 1 + c², 2 divide by 1 + c")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = solve_cagrad(gramian, self.c, rescale=self.rescale, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
