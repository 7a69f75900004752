"""DB-MTL: dual balancing, of losses and of gradients."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import JacobianBalancer, State
from mtlscale.config import knob

_FLOOR = 1e-8  # added to a loss before its logarithm, as in the authors' code


class DBMTL(JacobianBalancer):
    """Moving averages of the log losses' gradients, all brought to the length of the longest.

    Source: Lin et al., "Dual-Balancing for Multi-Task Learning" (2023) and LibMTL. ĝ_t follows ∇log ℓ_t with the decay
    β/k^σ at step k; d = Σ_t (max_s ‖ĝ_s‖ / ‖ĝ_t‖) ĝ_t. Task parameters get plain gradients, where LibMTL's get those of
    the log losses. The state holds a gradient per task and shared parameter. One task: its plain gradient.
    """

    name: ClassVar[str] = "db_mtl"
    source: ClassVar[str] = "Lin et al., arXiv 2308.12029, 2023"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    cost: ClassVar[str] = "T backwards, T x P memory"
    positive_losses: ClassVar[bool] = True
    per_row: ClassVar[tuple[str, ...]] = ("tracked.",)

    beta: float = knob(0.9, low=0, high=1, open_high=True, search=(0.1, 0.9, "linear"), help="decay of the average")
    sigma: float = knob(0.0, low=0, search=(0.0, 0.5), help="how fast the decay falls with the steps")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        return {"step": torch.zeros(batch, dtype=torch.int64)}

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        if losses.shape[-1] == 1:
            return [gradients[0] for gradients in jacobian], state

        state = {**state, "step": state["step"] + 1}
        decay = self.beta / state["step"].to(torch.float64) ** self.sigma
        inverse = 1.0 / (losses + _FLOOR)

        tracked, squares = [], torch.zeros_like(losses, dtype=torch.float64)
        for index, gradients in enumerate(jacobian):
            logarithmic = torch.einsum("t,t...->t...", inverse.to(gradients), gradients)
            previous = state.get(f"tracked.{index}", torch.zeros_like(gradients))
            tracked.append(torch.lerp(logarithmic, previous, decay.to(gradients)))
            state[f"tracked.{index}"] = tracked[-1]
            squares = squares + tracked[-1].to(torch.float64).square().flatten(1).sum(1)

        lengths = squares.sqrt()
        weights = torch.where(lengths == 0, 0.0, lengths.amax() / torch.where(lengths == 0, 1.0, lengths))
        return [torch.einsum("t,t...->...", weights.to(rows), rows) for rows in tracked], state
