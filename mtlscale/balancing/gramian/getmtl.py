"""GetMTL: gradient trade-offs between tasks, by the paper's algorithm."""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import LARGEST_KAPPA, solve_getmtl


class GetMTL(GramianBalancer):
    """The solution of CAGrad's problem on gradients that MGDA has rescaled, in a ball around the raw average gradient.

    Source: Chai et al. (ACL 2023), eq. 13-14. Built from the paper's mathematics; the authors' public code is another
    method (`getmtl_released`, docs/methods.md). κ = ε‖g₀‖ is cut to 0.9; `clamps` counts the cuts, and the largest κ is
    recorded. Tasks with a zero MGDA weight do not enter the worst case.
    """

    name: ClassVar[str] = "getmtl"
    source: ClassVar[str] = "Chai et al., ACL 2023, eq. 13-14"
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 2
    cost: ClassVar[str] = "T backwards"
    heads: ClassVar[Literal["weighted", "mean", "sum"]] = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures", "clamps")
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    traced: ClassVar[tuple[str, ...]] = ("kappa",)
    exact: ClassVar[bool] = False
    batchable: ClassVar[bool] = True

    eps: float = knob(
        0.025,
        low=0,
        high=1,
        open_low=True,
        search=(0.005, 0.5, "log"),
        help="ε, in units of 1/gradient unless relative",
    )
    relative: bool = knob(False, help="κ = ε instead of ε‖g₀‖, so that scaling the losses changes nothing")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        largest = torch.zeros(batch, dtype=torch.float64)  # the largest κ so far
        return {"kappa": largest, **_hints.precision(batch), **counters(batch, "failures", "clamps")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        precision = state["precision"]
        solution = solve_getmtl(gramian, self.eps, relative=self.relative, exact=self.exact, precision=precision)
        norm = gramian.mean((-2, -1)).clamp(min=0).sqrt()  # ‖g₀‖
        state = {**state, "kappa": torch.maximum(state["kappa"], self._kappa(norm))}
        return solution.weights.to(losses), count(state, failures=~solution.converged, clamps=solution.clamped)

    def _wanted(self, norm: Tensor) -> Tensor:
        """Return the κ [...] that ε asks for, given ‖g₀‖ [...]."""
        return torch.full_like(norm, self.eps) if self.relative else self.eps * norm

    def _kappa(self, norm: Tensor) -> Tensor:
        return self._wanted(norm).clamp(max=LARGEST_KAPPA)
