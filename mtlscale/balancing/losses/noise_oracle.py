"""NoiseOracle: fixed weights that know which tasks have wrong labels; a control."""

from collections.abc import Collection, Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob


class NoiseOracle(Balancer):
    """Fixed weights that know which tasks have label noise: these weigh less, the others alike; mean 1.

    A control, no method: nobody knows this of real data. It shows what weights that find noise can gain at most. The
    training loop calls `from_noise` in place of `init`. On a data set with noise in no task, or in all, the weights are
    equal.
    """

    name: ClassVar[str] = "noise_oracle"
    source: ClassVar[str] = "own control for label noise"
    per_task: ClassVar[tuple[str, ...]] = ("weights",)
    batchable: ClassVar[bool] = True

    noisy: float = knob(0.5, low=0.0, help="weight of a task with noise over that of one without; 0 removes it")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"weights": torch.ones(*batch, tasks, dtype=torch.float64)}

    def from_noise(self, tasks: Sequence[str], noisy: Collection[str]) -> State:
        """Return the state with the weights of these tasks.

        Args:
            noisy: Names of those whose training labels have noise.
        """
        weights = torch.tensor([self.noisy if task in noisy else 1.0 for task in tasks], dtype=torch.float64)
        mean = weights.mean()
        return {"weights": weights / mean if mean > 0 else torch.ones_like(weights)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        return state["weights"].to(losses), state
