"""Random weights for a whole run, a control of learned weighting."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing import stateless_random as _random
from mtlscale.balancing.contract import Balancer, State


class RandomStatic(Balancer):
    """Fixed weights drawn once per run, uniformly from the simplex (Dirichlet with all parameters 1).

    Where some tasks have no label in a step, the others' weights are divided by their sum. The control that any learned
    weighting has to beat: Xin et al., "Do Current Multi-Task Optimization Methods Even Help?" (NeurIPS 2022).
    """

    name: ClassVar[str] = "random_static"
    source: ClassVar[str] = "own control; cf. Xin et al., NeurIPS 2022"
    results_version: ClassVar[int] = 2  # sums to 1 over the tasks of the step
    per_task: ClassVar[tuple[str, ...]] = ("weights",)
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        samples = _random.draw(
            _random.start(seed, batch),
            lambda generator: torch.empty(tasks, dtype=torch.float64).exponential_(generator=generator),
        )
        return {"weights": samples / samples.sum(-1, keepdim=True)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        return _mass.shares(state["weights"]).to(losses), state
