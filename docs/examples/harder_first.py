from typing import ClassVar

from torch import Tensor

from mtlscale.balancing import Balancer, State
from mtlscale.config import knob


class HarderFirst(Balancer):
    """Weights from a softmax over the task losses: what is learned worst counts most."""

    name: ClassVar[str] = "harder_first"
    source: ClassVar[str] = "own example"
    needs: ClassVar = "losses"

    temperature: float = knob(1.0, low=0.0, open_low=True, search=(0.1, 10.0, "log"), help="large is equal weighting")

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        return (losses / self.temperature).softmax(-1), state
