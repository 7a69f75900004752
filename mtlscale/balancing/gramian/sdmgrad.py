"""SDMGrad: stochastic direction-oriented multi-objective gradient descent."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import solve_min_norm


class SDMGrad(GramianBalancer):
    """The MGDA direction pulled toward the average gradient: (g_w + λ g₀)/(1 + λ), w making g_w + λ g₀ shortest.

    Source: Xiao, Ban, Ji (NeurIPS 2023). The inner problem is solved exactly on the step's own batch; the authors (and
    TorchJD's SDMGradWeighting) take a few stochastic steps on two or three independent batches.
    """

    name: ClassVar[str] = "sdmgrad"
    source: ClassVar[str] = "Xiao et al., NeurIPS 2023"
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 2
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    lam: float = knob(0.3, low=0, search=(0.05, 10.0, "log"), help="λ; 0: MGDA, large: the average gradient")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = solve_min_norm(gramian, toward_average=self.lam, precision=state["precision"])
        weights = (solution.weights + self.lam / losses.shape[-1]) / (1.0 + self.lam)
        return weights.to(losses), count(state, failures=~solution.converged)
