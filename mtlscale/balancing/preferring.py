"""The contract of a balancer with a preference: it aims at one point of the Pareto front."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State, check_length
from mtlscale.config import UserError, knob
from mtlscale.config.preferences import check_preference, ray_of

_LEAST = 1e-6  # share of a task that a ray has to point at


class PreferenceBalancer(Balancer):
    """Base class of a balancer with a preference r: how much each task matters, r ≥ 0 and Σ r = 1.

    The preference is an entry of the state. The settings fill it in; where preferences are drawn anew for every step,
    the training loop does (`hints`).
    """

    per_task: ClassVar[tuple[str, ...]] = ("preference",)
    hints: ClassVar[tuple[str, ...]] = ("preference",)
    only_in_init: ClassVar[tuple[str, ...]] = ("preference", "ray")
    batchable: ClassVar[bool] = True

    preference: tuple[float, ...] = knob(
        (), low=0, high=1, help="how much each task matters, in the order of the tasks; sums to 1; default: all alike"
    )
    ray: str = knob("", help="'k of K', the k-th of K even rays, in place of a preference")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.preference and self.ray:
            raise UserError(f"{self.name}: has a preference and a ray; drop one")
        if self.preference:
            check_preference(self.name, self.preference)
        if self.ray:
            ray_of(self.name, 2, self.ray)

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        preference = torch.full((tasks,), 1.0 / tasks, dtype=torch.float64)
        if self.preference:
            check_length(self, "preference", self.preference, tasks)
            preference = torch.tensor(self.preference, dtype=torch.float64)
        if self.ray and tasks > 1:
            preference = torch.tensor(ray_of(self.name, tasks, self.ray), dtype=torch.float64)
        return {"preference": preference.expand(*batch, tasks).clone()}

    def shares(self, losses: Tensor, state: State) -> Tensor:
        """Return the preference [..., T] among the tasks of this step."""
        preference = state["preference"].to(losses)
        return preference / preference.sum(-1, keepdim=True).clamp(min=_LEAST)

    def target_ray(self, losses: Tensor, state: State) -> Tensor:
        """Return the unit vector [..., T] along which r_t ℓ_t are equal: what matters more has a smaller loss."""
        ray = 1.0 / self.shares(losses, state).clamp(min=_LEAST)
        unit: Tensor = ray / ray.norm(dim=-1, keepdim=True)
        return unit
