"""PBI: penalty-based boundary intersection, the losses' way along a ray and their distance to it."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.config import knob


class PBI(PreferenceBalancer):
    """The gradient of d₁ + θ d₂: the losses' way d₁ along the preference's ray u, and their distance d₂ to it.

    Source: Zhang, Li (IEEE TEC 2007), section III-B, with the ideal point z* = 0. The paper's vector is the ray
    itself; here r says how much tasks matter, so the ray is u ∝ 1/r. A task whose loss is below the ray may get a
    negative weight.
    """

    name: ClassVar[str] = "pbi"
    source: ClassVar[str] = "Zhang & Li, IEEE TEC 2007, section III-B"

    theta: float = knob(5.0, low=0, search=(0.5, 50.0, "log"), help="θ, what a distance to the ray costs")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if losses.shape[-1] == 1:
            return torch.ones_like(losses), state
        ray = self.target_ray(losses, state)
        aside = losses - (losses * ray).sum(-1, keepdim=True) * ray
        distance = aside.norm(dim=-1, keepdim=True)
        off = distance > 1e-12 * losses.norm(dim=-1, keepdim=True)
        return ray + self.theta * torch.where(off, aside / torch.where(off, distance, 1.0), 0.0), state
