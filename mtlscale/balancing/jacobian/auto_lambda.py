"""Auto-λ: loss weights as meta-parameters."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import state_adam as _adam
from mtlscale.balancing.contract import State, ValidationBalancer
from mtlscale.config import UserError, knob


class AutoLambda(ValidationBalancer):
    """Weights learned to lower the primary tasks' validation losses after a look-ahead step.

    Source: Liu et al. (TMLR 2022). Called like `meta_weighting`, with support and query from disjoint halves of the
    training data. The gradient of Σ_t q_t(θ - η Σ_s λ_s g_s) in λ_s is -η Σ_t ⟨∇q_t(θ'), g_s⟩, which the authors' code
    approximates by finite differences. The weights are learned with Adam, as there, and are kept at or above 0. One
    task weighs 1.
    """

    name: ClassVar[str] = "auto_lambda"
    source: ClassVar[str] = "Liu et al., TMLR 2022"
    cost: ClassVar[str] = "2T backwards"
    results_version: ClassVar[int] = 3  # tasks at rest are left out; products of gradients added up in pieces
    per_task: ClassVar[tuple[str, ...]] = ("weights", "primary", *_adam.PER_TASK)

    eta: float = knob(0.1, low=0, open_low=True, search=(1e-3, 1.0, "log"), help="η, the look-ahead's learning rate")
    lr: float = knob(1e-3, low=0, open_low=True, search=(1e-4, 1e-1, "log"), help="step size of the weights")
    initial: float = knob(0.1, low=0, open_low=True, help="the weights at the start")
    primary: tuple[int, ...] = knob((), low=0, help="indices of the tasks to serve, from 0; all by default")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        chosen = list(self.primary) or list(range(tasks))
        if any(not 0 <= task < tasks for task in chosen):
            raise UserError(f"{self.name}: primary = {chosen} must name tasks from 0 to {tasks - 1}")
        primary = torch.zeros(*batch, tasks, dtype=torch.float64)
        primary[..., chosen] = 1.0
        return {
            "weights": torch.full((*batch, tasks), self.initial if tasks > 1 else 1.0, dtype=torch.float64),
            "primary": primary,
            **_adam.start(tasks, batch),
        }

    def lookahead(self, state: State) -> Tensor:
        return state["weights"]

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        if losses.shape[-1] == 1:
            return torch.ones_like(losses), state
        slope = -self.eta * torch.einsum("...t,...ts->...s", state["primary"], gramian.to(torch.float64))
        change, after = _adam.step(state, slope, self.lr, active=torch.ones_like(state["adam_step"], dtype=torch.bool))
        weights = (state["weights"] + change).clamp(min=0.0)
        return weights.to(losses), {**after, "weights": weights}
