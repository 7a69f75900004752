"""BanditMTL: an adversarial multi-armed bandit."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing.contract import Balancer, State
from mtlscale.config import knob
from mtlscale.solvers import kl_ball_log_softmax


class Bandit(Balancer):
    """Weights that an adversary moves toward large losses, inside a Kullback-Leibler ball around equal weights.

    Source: BanditMTL (Mao et al., ACL 2021). Mirror ascent before each step, in logs. ρ >= log T leaves the simplex
    unconstrained.
    """

    name: ClassVar[str] = "bandit"
    source: ClassVar[str] = "Mao et al., ACL 2021"
    results_version: ClassVar[int] = 2  # tasks without labels keep their share
    per_task: ClassVar[tuple[str, ...]] = ("log_weights",)
    batchable: ClassVar[bool] = True

    rho: float = knob(0.5, low=0, open_low=True, search=(0.05, 2.0, "log"), help="radius of the ball")
    lr: float = knob(0.1, low=0, open_low=True, search=(0.01, 1.0, "log"), help="η_p, the adversary's step size")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"log_weights": torch.full((*batch, tasks), -math.log(tasks), dtype=torch.float64)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        log_weights = kl_ball_log_softmax(state["log_weights"] + self.lr * losses, self.rho)
        after = log_weights + _mass.log_of(state["log_weights"])
        return log_weights.exp().to(losses), {**state, "log_weights": after}
