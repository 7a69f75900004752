"""Static weights by hand."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State, check_length
from mtlscale.config import knob


class Static(Balancer):
    """Fixed task weights that the user sets; one task weighs 1."""

    name: ClassVar[str] = "static"
    source: ClassVar[str] = "own statement of the common baseline: fixed weights"
    per_task: ClassVar[tuple[str, ...]] = ("weights",)
    batchable: ClassVar[bool] = True

    weights: tuple[float, ...] = knob((), low=0, help="one weight per task, in the order of the tasks")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        check_length(self, "weights", self.weights, tasks)
        weights = torch.tensor(self.weights, dtype=torch.float64)
        return {"weights": weights.expand(*batch, tasks).clone() if tasks > 1 else torch.ones(*batch, 1).double()}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        return state["weights"].to(losses), state
