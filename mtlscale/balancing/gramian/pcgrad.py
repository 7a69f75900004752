"""PCGrad: projecting conflicting gradients, also known as gradient surgery."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import stateless_random as _random
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.solvers import pcgrad_weights


class PCGrad(GramianBalancer):
    """The sum of the gradients after each lost its component against every conflicting one, in random order.

    Source: Yu et al. (NeurIPS 2020), Algorithm 1. As TorchJD's PCGradWeighting, but for all tasks at once, with zero
    gradients skipped and orders drawn from the run's seed instead of the global generator.
    """

    name: ClassVar[str] = "pcgrad"
    source: ClassVar[str] = "Yu et al., NeurIPS 2020, Algorithm 1"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T backwards"
    heads = "sum"
    batchable: ClassVar[bool] = True

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return _random.start(seed, batch)

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        return pcgrad_weights(gramian, _random.orders(state, gramian)).to(losses), _random.advance(state)
