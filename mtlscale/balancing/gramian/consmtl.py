"""ConsMTL: consistent multi-task learning."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import Balancer, Needs, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import fair_weights


class ConsMTL(Balancer):
    """Fair weights for what is shared; heads that bring their gradients at the representation together.

    Source: Qin et al. (CVPR 2025). K w = w^(-1/2), as `fairgrad`. Each head also ascends λ ⟨∂ℓ_t/∂z, Σ_s w_s ∂ℓ_s/∂z⟩,
    the second factor constant, cut to a tenth of its own gradient's norm. It needs one shared representation z and
    whole steps (`accumulate: 1`). λ is our choice. `failures` as in `fairgrad`. One task weighs 1.
    """

    name: ClassVar[str] = "consmtl"
    source: ClassVar[str] = "Qin et al., CVPR 2025 (ConsMTL)"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    needs: ClassVar[Needs] = "gramian"
    cost: ClassVar[str] = "T backwards + T through heads"
    heads = "sum"
    aligns_heads: ClassVar[bool] = True
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)

    lam: float = knob(1.0, low=0, search=(1e-3, 10.0, "log"), help="λ, how much heads follow the other tasks")
    limit: float = knob(0.1, low=0, help="the largest part of a head's own gradient that λ may add")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**_hints.precision(batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = fair_weights(gramian, 2.0, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
