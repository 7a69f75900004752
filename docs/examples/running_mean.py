from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.config import knob


class RunningMean(Balancer):
    """Weights proportional to a power of each loss's running mean, summing to one."""

    name: ClassVar[str] = "running_mean"
    source: ClassVar[str] = "own example"
    needs: ClassVar = "losses"  # the cheapest thing that suffices
    per_task: ClassVar[tuple[str, ...]] = ("mean",)  # left as it is for tasks without labels in a step
    batchable: ClassVar[bool] = True  # works over leading dimensions, of a batch of trials

    power: float = knob(1.0, low=0.0, search=(0.0, 2.0, "linear"), help="0 is equal weighting")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"mean": torch.ones(*batch, tasks, dtype=torch.float64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        mean = 0.9 * state["mean"] + 0.1 * losses
        weights = mean.clamp(min=1e-12) ** self.power
        return weights / weights.sum(-1, keepdim=True), {"mean": mean}
