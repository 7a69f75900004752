"""CR-MOGM: smoothed weights for stochastic gradients."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import State
from mtlscale.balancing.wrapper import Wrapper
from mtlscale.config import knob

_WEIGHTS, _LEVEL, _SEEN, _TOTAL = "smooth.weights", "smooth.level", "smooth.seen", "smooth.total"


class Smooth(Wrapper):
    """A moving average of another balancer's weights: ω ← α ω + (1 - α) ω̂, from ω = ω̂ in a task's first step.

    Source: CR-MOGM (Zhou et al., NeurIPS 2022), equation 6. The paper smooths convex weights on the simplex; here any
    balancer's weights are smoothed in the convention that it has. In a step without labels of a task its average stays;
    the others' are brought to the sum of the new weights first, since these depend on how many tasks share it.
    """

    name: ClassVar[str] = "smooth"
    source: ClassVar[str] = "CR-MOGM: Zhou et al., NeurIPS 2022, equation 6"
    results_version: ClassVar[int] = 2  # averages follow the number of tasks in the step
    own: ClassVar[tuple[str, ...]] = (_WEIGHTS, _LEVEL, _SEEN, _TOTAL)

    alpha: float = knob(0.9, low=0, high=1, open_high=True, search=(0.0, 0.5, 0.9, 0.99), help="share of the average")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            **super().init(tasks, seed=seed, batch=batch),
            _WEIGHTS: torch.zeros(*batch, tasks, dtype=torch.float64),
            _LEVEL: torch.ones(*batch, tasks, dtype=torch.float64),  # mean new weight in the task's last step
            _SEEN: torch.zeros(*batch, tasks, dtype=torch.int64),  # tasks in that step; 0: there was none
            _TOTAL: torch.full((*batch, tasks), tasks, dtype=torch.int64),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        weights, inner_state = self.inner(losses, gramian, self._of_inner(state))
        average, level = state[_WEIGHTS].to(weights), state[_LEVEL].to(weights)
        begun = state[_SEEN].to(weights.device) > 0

        # Where all tasks are there, and were in their last steps, averages have the convention of the new weights.
        counts = torch.cat([state[_SEEN], torch.full_like(state[_SEEN], losses.shape[-1])], dim=-1)
        whole = (counts == torch.cat([state[_TOTAL]] * 2, dim=-1)) | (counts == 0)
        average = torch.where(
            whole.all(-1, keepdim=True).to(weights.device), average, _brought(average / level, weights, begun)
        )

        averaged = torch.where(begun, self.alpha * average + (1 - self.alpha) * weights, weights)
        own = {
            _WEIGHTS: averaged,
            _LEVEL: weights.mean(-1, keepdim=True).expand_as(weights),
            _SEEN: torch.full_like(state[_SEEN], losses.shape[-1]),
            _TOTAL: state[_TOTAL],
        }
        return averaged, {**inner_state, **own}


def _brought(relative: Tensor, weights: Tensor, begun: Tensor) -> Tensor:
    """Return relative weights [..., T] brought to the sum of the weights; the weights where no factor does that."""
    total = torch.where(begun, relative, 0.0).sum(-1, keepdim=True)
    factor = torch.where(begun, weights, 0.0).sum(-1, keepdim=True) / total
    usable = factor.isfinite() & (factor > 0)
    return torch.where(usable, relative * torch.where(usable, factor, 1.0), weights)
