"""COSMOS: the weighted sum of the losses, less their cosine with the preference."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.preferring import PreferenceBalancer
from mtlscale.config import knob


class Cosmos(PreferenceBalancer):
    """The gradient of Σ r_t ℓ_t - λ cos(r, ℓ), for networks that are given the preference.

    Source: Ruchte, Grabocka (ICDM 2021), equation 5. As published, the two terms do not agree on what r means: the sum
    makes the loss of a task with a large r small, the cosine makes it large. λ = 0 is `linear_scalarization`. A weight
    may be negative.
    """

    name: ClassVar[str] = "cosmos"
    source: ClassVar[str] = "Ruchte & Grabocka, ICDM 2021, equation 5"

    lam: float = knob(2.0, low=0, search=(0.01, 10.0, "log"), help="λ, what the cosine counts")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        if losses.shape[-1] == 1:
            return torch.ones_like(losses), state
        shares = self.shares(losses, state)
        size = losses.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        unit = shares / shares.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        cosine = (unit * losses).sum(-1, keepdim=True) / size
        return shares - self.lam * (unit - cosine * losses / size) / size, state
