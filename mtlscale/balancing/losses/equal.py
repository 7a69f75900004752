"""Equal weighting, the baseline of all balancers."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob


class Equal(Balancer):
    """The mean of the task losses, or their sum: every task weighs the same.

    The papers differ in the convention; a run's record says which one it used.
    """

    name: ClassVar[str] = "equal"
    source: ClassVar[str] = "own statement of the common baseline (EW): mean or sum"
    batchable: ClassVar[bool] = True

    reduction: str = knob("mean", choices=("mean", "sum"), help="mean or sum over tasks")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        value = 1.0 / losses.shape[-1] if self.reduction == "mean" else 1.0
        return torch.full_like(losses, value), state
