"""Tchebycheff scalarisation."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import Balancer, State, check_length
from mtlscale.config import knob


class Tchebycheff(Balancer):
    """The gradient of the worst weighted distance to the ideal losses, max_t c_t (ℓ_t - z_t).

    Source: the scalarisation of TchebycheffAdv (Mao et al., ACL 2020; its adversarial term is an objective). ω = c_t
    e_t for the worst task, ties shared equally; with `smoothing` τ > 0 the gradient of τ log Σ exp(c_t (ℓ_t - z_t)/τ).
    """

    name: ClassVar[str] = "tchebycheff"
    source: ClassVar[str] = "TchebycheffAdv, Mao et al., ACL 2020"
    per_task: ClassVar[tuple[str, ...]] = ("preference", "ideal")
    results_version: ClassVar[int] = 2  # by default c is 1 over the number of tasks in the step
    batchable: ClassVar[bool] = True

    weights: tuple[float, ...] = knob((), low=0, help="c, one per task; by default 1/T of the T tasks in a step")
    ideal: tuple[float, ...] = knob((), help="z, one per task, such as single-task training losses; 0 by default")
    smoothing: float = knob(0.0, low=0, search=(0.01, 1.0, "log"), help="τ of the smooth maximum; 0: the maximum")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        state = {}
        for key, knob_name, setting, default in (
            ("preference", "weights", self.weights, 1.0 / tasks),
            ("ideal", "ideal", self.ideal, 0.0),
        ):
            if setting:
                check_length(self, knob_name, setting, tasks)
            values = torch.tensor(setting or (default,) * tasks, dtype=torch.float64)
            state[key] = values.expand(*batch, tasks).clone()
        return state

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        preference = state["preference"] if self.weights else torch.full_like(losses, 1.0 / losses.shape[-1])
        distances = preference * (losses - state["ideal"])
        if self.smoothing > 0.0:
            shares = torch.softmax(distances / self.smoothing, dim=-1)
        else:
            worst = (distances == distances.amax(-1, keepdim=True)).to(losses)
            shares = worst / worst.sum(-1, keepdim=True)
        return (preference * shares).to(losses), state
