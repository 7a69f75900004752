"""MoCo: multi-objective gradient correction."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import partial_simplex as _mass
from mtlscale.balancing.contract import JacobianBalancer, State
from mtlscale.config import knob
from mtlscale.solvers import inner_products


class MoCo(JacobianBalancer):
    """The MGDA direction of tracked gradients: Y follows the batch's Jacobian, λ descends ‖Yᵀλ‖², d = Yᵀλ.

    Source: Fernando et al. (ICLR 2023), Algorithm 1; steps β/√k and γ/√k at step k. λ is projected onto the simplex, as
    in the paper (common code takes a softmax). Its step is divided by the longest tracked gradient's square, so that it
    does not depend on the gradients' scale. The state holds Y, a gradient per task and shared parameter. One task: its
    plain gradient.
    """

    name: ClassVar[str] = "moco"
    source: ClassVar[str] = "Fernando et al., ICLR 2023, Algorithm 1"
    cost: ClassVar[str] = "T backwards, T x P memory"
    heads = "mean"
    # heads by the tasks of the step; tasks at rest are left out; products of gradients added up in pieces
    results_version: ClassVar[int] = 3
    per_task: ClassVar[tuple[str, ...]] = ("weights",)
    per_row: ClassVar[tuple[str, ...]] = ("tracked.",)

    beta: float = knob(0.5, low=0, high=1, open_low=True, search=(0.1, 1.0, "log"), help="how fast Y follows")
    gamma: float = knob(0.1, low=0, open_low=True, search=(0.01, 10.0, "log"), help="step size of λ")
    rho: float = knob(0.0, low=0, search=(1e-3, 1.0, "log"), help="pull of λ toward equal weights")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {
            "weights": torch.full((*batch, tasks), 1.0 / tasks, dtype=torch.float64),
            "step": torch.zeros(batch, dtype=torch.int64),
        }

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        if losses.shape[-1] == 1:
            return [gradients[0] for gradients in jacobian], state

        state = dict(state)
        state["step"] = state["step"] + 1
        decay = state["step"].to(torch.float64).rsqrt()
        tracking_rate = self.beta * decay

        tracked = []
        gramian = torch.zeros(2 * (losses.shape[-1],), dtype=torch.float64, device=losses.device)
        for index, gradients in enumerate(jacobian):
            previous = state.get(f"tracked.{index}", torch.zeros_like(gradients))
            tracked.append(torch.lerp(previous, gradients, tracking_rate.to(gradients)))
            state[f"tracked.{index}"] = tracked[-1]
            flat = tracked[-1].flatten(1)
            gramian = gramian + inner_products(flat, flat)

        largest = gramian.diagonal().amax()
        weights = state["weights"]
        slope = gramian @ weights / torch.where(largest > 0, largest, 1.0) + self.rho * weights
        weights, state["weights"] = _mass.project(weights, -self.gamma * decay * slope)

        return [torch.einsum("t,t...->...", weights.to(rows), rows) for rows in tracked], state
