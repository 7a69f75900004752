"""RLW: random loss weighting."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import stateless_random as _random
from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob


class RLW(Balancer):
    """Random weights drawn anew in every step, summing to 1.

    Uniform numbers over their sum, as in CoNAL (Yue's thesis); `normal` is the softmax of standard normals of the
    original (Lin et al., TMLR 2022), as TorchJD's Random.
    """

    name: ClassVar[str] = "rlw"
    source: ClassVar[str] = "Lin et al., TMLR 2022"
    batchable: ClassVar[bool] = True

    distribution: str = knob("uniform", choices=("uniform", "normal"), help="what the weights are drawn from")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return _random.start(seed, batch)

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        tasks = losses.shape[-1]

        def weights(generator: torch.Generator) -> Tensor:
            if self.distribution == "normal":
                return torch.softmax(torch.randn(tasks, dtype=torch.float64, generator=generator), dim=-1)
            # 1 - U lies in (0, 1]: the sum is never zero.
            samples = 1.0 - torch.rand(tasks, dtype=torch.float64, generator=generator)
            return samples / samples.sum()

        return _random.draw(state, weights).to(losses), _random.advance(state)
