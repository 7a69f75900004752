"""M-ConFIG: ConFIG with momentum."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import JacobianBalancer, State
from mtlscale.config import knob
from mtlscale.solvers import config_weights


class MConFIG(JacobianBalancer):
    """ConFIG's direction of moving averages, of which one task's moves in a step, in turn.

    Source: Liu, Chu, Thuerey (ICLR 2025), M-ConFIG, without its second moment, which is left to the optimiser. The
    authors compute one gradient a step; the training loop here computes all, so that it saves no time. The turn is of
    the task with labels that has waited longest. Tasks that have had none yet count as gradients of zero. The state
    holds a gradient per task and shared parameter. One task: its plain gradient.
    """

    name: ClassVar[str] = "m_config"
    source: ClassVar[str] = "Liu et al., ICLR 2025, M-ConFIG"
    results_version: ClassVar[int] = 2  # tasks at rest are left out
    cost: ClassVar[str] = "T backwards, T x P memory"
    per_task: ClassVar[tuple[str, ...]] = ("turns", "latest")
    per_row: ClassVar[tuple[str, ...]] = ("tracked.",)
    on_host: ClassVar[tuple[str, ...]] = ("turns", "latest", "step")

    beta: float = knob(0.9, low=0, high=1, open_high=True, search=(0.5, 0.99, "linear"), help="decay of the averages")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        turns = torch.zeros(*batch, tasks, dtype=torch.int64)
        return {"turns": turns, "latest": turns.clone(), "step": torch.zeros(batch, dtype=torch.int64)}

    def direction(self, jacobian: list[Tensor], losses: Tensor, state: State) -> tuple[list[Tensor], State]:
        if losses.shape[-1] == 1:
            return [gradients[0] for gradients in jacobian], state

        tasks, step = losses.shape[-1], state["step"] + 1
        turn = int(state["latest"].argmin())
        turns, latest = state["turns"].clone(), state["latest"].clone()
        turns[turn] += 1
        latest[turn] = step
        state = {**state, "turns": turns, "latest": latest, "step": step}

        unbiased = 1.0 - self.beta ** turns.to(torch.float64)
        factors = torch.where(turns > 0, 1.0 / torch.where(turns > 0, unbiased, 1.0), 0.0)
        factors = factors.to(jacobian[0].device, non_blocking=True)  # one copy for all of them
        means, gramian = [], torch.zeros(tasks, tasks, dtype=torch.float64, device=jacobian[0].device)
        for index, gradients in enumerate(jacobian):
            tracked = state.get(f"tracked.{index}", torch.zeros_like(gradients)).clone()
            tracked[turn] = self.beta * tracked[turn] + (1.0 - self.beta) * gradients[turn]
            state[f"tracked.{index}"] = tracked
            means.append(torch.einsum("t,t...->t...", factors.to(tracked), tracked))
            flat = means[-1].flatten(1).to(gramian)
            gramian = gramian + flat @ flat.T

        # The solver works on the host: one wait for the Gramian, none for the weights.
        weights = config_weights(gramian.cpu(), precision=torch.finfo(means[0].dtype).eps).weights
        weights = weights.to(gramian.device, non_blocking=True)
        return [torch.einsum("t,t...->...", weights.to(rows), rows) for rows in means], state
