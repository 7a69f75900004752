"""PMGDA: MGDA with a preference, which corrects the losses' distance to a ray and then descends."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.config import knob
from mtlscale.solvers import pmgda_weights


class PMGDA(PreferenceBalancer, GramianBalancer):
    """MGDA with a preference: while the losses are away from the ray, each step also brings them closer to it.

    Source: Zhang, Lin, Zhang (2024), equations 18 and 20, with the authors' distance h to the ray (`pbi`). The
    paper's vector is the ray itself; here r says how much tasks matter, so the ray is u ∝ 1/r. A correction is made of
    unit gradients, a descent is MGDA's; weights may be negative in a correction.
    """

    name: ClassVar[str] = "pmgda"
    source: ClassVar[str] = "Zhang, Lin & Zhang, PMGDA, 2024, equations 18 and 20"
    # heads by the tasks of the step; tasks at rest are left out; bounds hold in the gradients' precision
    results_version: ClassVar[int] = 2
    cost: ClassVar[str] = "T backwards"
    heads = "mean"
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = (*PreferenceBalancer.hints, "precision")

    tolerance: float = knob(0.01, low=0, search=(1e-3, 0.1, "log"), help="h, the distance to the ray that is let be")
    sigma: float = knob(
        0.9, low=0, high=1, search=(0.5, 0.95), help="σ, share of the steepest descent of h that a correction keeps"
    )

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            **super().init(tasks, seed=seed, batch=batch),
            **_hints.precision(batch),
            **counters(batch, "failures"),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        ray = self.target_ray(losses, state)
        solution = pmgda_weights(gramian, losses, ray, self.tolerance, self.sigma, precision=state["precision"])
        return solution.weights.to(losses), count(state, failures=~solution.converged)
