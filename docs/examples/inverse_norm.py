from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.config import knob


class InverseNorm(Balancer):
    """Weights inversely proportional to a power of the gradient norms, summing to one."""

    name: ClassVar[str] = "inverse_norm"
    source: ClassVar[str] = "own example"
    needs: ClassVar = "gramian"  # the cheapest thing that suffices: "losses", "gramian" or "jacobian"
    heads: ClassVar = "mean"  # the scale of the heads' own gradients, to match the shared direction

    power: float = knob(1.0, low=0, high=4, search=(0.1, 4, "log"), help="0 is equal weighting")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        norms = gramian.diagonal(dim1=-2, dim2=-1).sqrt().clamp(min=1e-12)
        weights = norms**-self.power
        return weights / weights.sum(-1, keepdim=True), state
