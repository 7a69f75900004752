"""CR-MOGM: a moving average of another balancer's weights."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.wrapper import Wrapper
from mtlscale.config import knob

_WEIGHTS, _SEEN = "smooth.weights", "smooth.seen"


class Smooth(Wrapper):
    """A moving average of another balancer's weights: ω ← α ω + (1 - α) ω̂, from ω = ω̂ in a task's first step.

    Source: CR-MOGM (Zhou et al., NeurIPS 2022), equation 6. The paper smooths convex weights on the simplex; here any
    balancer's weights are smoothed in the convention that it has. In a step without labels of a task its average stays.
    """

    name: ClassVar[str] = "smooth"
    source: ClassVar[str] = "CR-MOGM: Zhou et al., NeurIPS 2022, equation 6"
    own: ClassVar[tuple[str, ...]] = (_WEIGHTS, _SEEN)

    alpha: float = knob(0.9, low=0, high=1, open_high=True, search=(0.0, 0.5, 0.9, 0.99), help="share of the average")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            **super().init(tasks, seed=seed, batch=batch),
            _WEIGHTS: torch.zeros(*batch, tasks, dtype=torch.float64),
            _SEEN: torch.zeros(*batch, tasks, dtype=torch.int64),  # 1: the average of this task has begun
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        weights, inner_state = self.inner(losses, gramian, self._of_inner(state))
        averaged = self.alpha * state[_WEIGHTS].to(weights) + (1 - self.alpha) * weights
        averaged = torch.where(state[_SEEN].to(weights.device) > 0, averaged, weights)
        return averaged, {**inner_state, _WEIGHTS: averaged, _SEEN: torch.ones_like(state[_SEEN])}
