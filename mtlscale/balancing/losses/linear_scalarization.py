"""Linear scalarisation of a preference."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.preferring import PreferenceBalancer


class LinearScalarization(PreferenceBalancer):
    """The preference itself weights the losses: ω = r.

    Source: the weighted sum (Zadeh 1963). Over a grid of rays it is the floor of methods that look for a front; it
    finds no point in a concave part of one.
    """

    name: ClassVar[str] = "linear_scalarization"
    source: ClassVar[str] = "Zadeh, IEEE TAC 1963"

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        return torch.ones_like(losses) if losses.shape[-1] == 1 else self.shares(losses, state), state
