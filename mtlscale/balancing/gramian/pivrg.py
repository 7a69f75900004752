"""PIVRG: performance-informed variance reduction of gradients."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State, check_length
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import knob
from mtlscale.solvers import fair_weights

_LEAST_TEMPERATURE = 10.0  # percent


class PIVRG(GramianBalancer):
    """Fair weights that favour the tasks whose losses lie furthest above those of single-task training.

    Source: Qin et al. (CVPR 2025). s_t is the task's loss over `single_task`'s, minus 1, in percent, refreshed with
    every epoch; q = T softmax(s/τ), τ = max((max s - min s)/log 2, 10); K w = √(q/w), ω = T w. The authors measure s by
    validation metrics; here by the epoch's training losses. Without `single_task`, q = 1: fairness alone. `failures`
    counts Pareto-stationary steps, in which no such w exists. One task weighs 1.
    """

    name: ClassVar[str] = "pivrg"
    source: ClassVar[str] = "Qin et al., CVPR 2025"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T backwards"
    heads = "sum"
    per_task: ClassVar[tuple[str, ...]] = ("single_task", "drops")
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    single_task: tuple[float, ...] = knob((), low=0, open_low=True, help="losses of single-task training, by task")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        if self.single_task:
            check_length(self, "single_task", self.single_task, tasks)
        known = torch.tensor(self.single_task or [0.0] * tasks, dtype=torch.float64)  # 0: not known
        return {
            "single_task": known.expand(*batch, tasks).clone(),
            "drops": torch.zeros(*batch, tasks, dtype=torch.float64),
            **_hints.precision(batch),
            **counters(batch, "failures"),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        drops, tasks = state["drops"], losses.shape[-1]
        spread = drops.amax(-1, keepdim=True) - drops.amin(-1, keepdim=True)
        temperature = (spread / math.log(2.0)).clamp(min=_LEAST_TEMPERATURE)
        favour = tasks * torch.softmax(drops / temperature, dim=-1)

        solution = fair_weights(gramian, 2.0, precision=state["precision"], factors=favour.sqrt())
        weights = solution.weights if tasks == 1 else tasks * solution.weights
        return weights.to(losses), count(state, failures=~solution.converged)

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        drops = 100.0 * (losses.to(state["drops"]) / state["single_task"] - 1.0)
        return {**state, "drops": torch.where(drops.isfinite(), drops, state["drops"])}
