"""GradVac: gradient vaccine."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import stateless_random as _random
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.config import knob
from mtlscale.solvers import gradvac_weights


class GradVac(GramianBalancer):
    """The sum of the gradients after pairs with a cosine below its running average were turned toward each other.

    Source: Wang et al. (ICLR 2021). Whole-model granularity, for which the Gramian suffices (the authors also offer
    layers). As TorchJD's GradVacWeighting without its 1e-8 in the denominators, which breaks scale invariance, with
    orders drawn from the run's seed.
    """

    name: ClassVar[str] = "gradvac"
    source: ClassVar[str] = "Wang et al., ICLR 2021, eq. 3-4"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T backwards"
    heads = "sum"
    per_pair: ClassVar[tuple[str, ...]] = ("targets",)
    batchable: ClassVar[bool] = True

    beta: float = knob(0.01, low=0, high=1, search=(1e-3, 0.5, "log"), help="how fast the target cosines follow")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"targets": torch.zeros(*batch, tasks, tasks, dtype=torch.float64), **_random.start(seed, batch)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        weights, targets = gradvac_weights(gramian, state["targets"], self.beta, _random.orders(state, gramian))
        return weights.to(losses), _random.advance({**state, "targets": targets})
