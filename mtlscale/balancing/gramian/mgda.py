"""MGDA: the multiple-gradient descent algorithm."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import solve_min_norm


class MGDA(GramianBalancer):
    """The shortest vector in the convex hull of the task gradients.

    Source: Désidéri (2012); Sener, Koltun (NeurIPS 2018). Exact, where TorchJD's MGDAWeighting
    stops Frank-Wolfe early. `normalize` divides each gradient before solving; the weights then apply to the raw
    gradients, as in the common code, or to the normalised ones with `divide`.
    """

    name: ClassVar[str] = "mgda"
    source: ClassVar[str] = "Désidéri 2012; Sener & Koltun, NeurIPS 2018"
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 2
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    normalize: str = knob(
        "none",
        choices=("none", "l2", "loss", "loss+"),
        search=("none", "l2", "loss+"),
        help="divide gradients by",
    )
    divide: bool = knob(False, help="apply the weights to the normalised gradients instead of the raw ones")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "positive_losses", self.normalize in ("loss", "loss+"))

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        inverse = 1.0 / self._sizes(losses, gramian)
        normalized = inverse.unsqueeze(-1) * gramian * inverse.unsqueeze(-2)
        solution = solve_min_norm(normalized, precision=state["precision"])
        state = count(state, failures=~solution.converged)
        weights = solution.weights
        if self.divide and losses.shape[-1] > 1:
            weights = weights * inverse
        return weights.to(losses), state

    def _sizes(self, losses: Tensor, gramian: Tensor) -> Tensor:
        """Return the divisor of each gradient [..., T]; 1 where it would be zero."""
        sizes = torch.ones_like(losses)
        if self.normalize in ("l2", "loss+"):
            sizes = sizes * gramian.diagonal(dim1=-2, dim2=-1).clamp(min=0).sqrt()
        if self.normalize in ("loss", "loss+"):
            sizes = sizes * losses
        return torch.where(sizes > 0, sizes, 1.0)
