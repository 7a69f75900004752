"""Sharpness-aware minimisation for several tasks (SAM, SAMO)."""

from typing import ClassVar

from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.wrapper import Wrapper
from mtlscale.config import knob


class LookAhead(Wrapper):
    """Another balancer at work on what lies uphill: losses and gradients at θ + ρ ḡ/|ḡ|, the step from θ.

    ḡ is the gradient of the mean loss over all parameters. Source: SAM (Foret et al., ICLR 2021) as SAMO has it for
    several tasks (Ban et al., ICCV 2025): its global perturbation alone, without the local ones that SAMO estimates for
    each task. Costs a forward and a backward pass more. Dropout leaves out the same units in both passes.
    """

    name: ClassVar[str] = "look_ahead"
    source: ClassVar[str] = "SAMO: Ban et al., ICCV 2025, the global perturbation"
    cost: ClassVar[str] = "as the wrapped balancer, and 1 backward"

    rho: float = knob(0.05, low=0, search=(0.01, 0.5, "log"), help="ρ, the length of the way uphill")

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "ascent", self.rho)

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        weights, next_state = self.inner(losses, gramian, state)
        return weights, next_state
