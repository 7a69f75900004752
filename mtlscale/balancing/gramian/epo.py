"""EPO: exact Pareto optimal search, towards the point of the front on the preference's ray."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.config import knob
from mtlscale.solvers import epo_weights


class EPO(PreferenceBalancer, GramianBalancer):
    """Exact Pareto optimal search: first the products r_t ℓ_t become equal, then all losses fall together.

    Source: Mahapatra, Rajan (ICML 2020), section 4 and the authors' linear programs. Losses have to be positive.
    `failures` counts steps whose program has no solution; the preference then weights the losses, as in their code.
    """

    name: ClassVar[str] = "epo"
    source: ClassVar[str] = "Mahapatra & Rajan, ICML 2020, section 4"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T backwards"
    heads = "weighted"
    positive_losses: ClassVar[bool] = True
    counters: ClassVar[tuple[str, ...]] = ("failures",)

    tolerance: float = knob(
        1e-4, low=0, search=(1e-5, 1e-2, "log"), help="how far from equal products r_t ℓ_t count as equal (μ ≤ ε)"
    )

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {**super().init(tasks, seed=seed, batch=batch), **counters(batch, "failures")}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        solution = epo_weights(gramian, losses, self.shares(losses, state), self.tolerance)
        return solution.weights.to(losses), count(state, failures=~solution.converged)
