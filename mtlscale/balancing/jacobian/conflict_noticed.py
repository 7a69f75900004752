"""Conflict-noticed updates, module by module, as in CoNAL."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import ModuleBalancer, State
from mtlscale.config import knob
from mtlscale.solvers import conflicting_pairs, module_mask

_COUNTED = ("conflicts", "applied", "moved")  # entries of the state with a count for each module


class ConflictNoticed(ModuleBalancer):
    """The sum of the task gradients in each module, left out if tasks conflict in it or nearer the input.

    Source: Yue, Zhang, Liang (AAAI 2023). Gradients conflict where their inner product is negative. A module that is
    left out keeps its parameters bit by bit; heads and private modules are always updated. Of each module and epoch
    three ratios are traced: `conflict_ratio`, the share of task pairs that conflicted; `applied_ratio`, the share that
    conflicted in a step that moved the module; and `moved_ratio`, the share of steps that moved it.
    """

    name: ClassVar[str] = "conflict_noticed"
    source: ClassVar[str] = "Yue et al., AAAI 2023"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; products of gradients added up in pieces
    cost: ClassVar[str] = "T+1 backwards"
    traced: ClassVar[tuple[str, ...]] = ("conflict_ratio", "applied_ratio", "moved_ratio")

    conflict: str = knob(
        "prefix",
        choices=["prefix", "module", "none"],
        help="what is left out: all from the first module with a conflict on, each by itself, or nothing",
    )

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        empty = torch.zeros(0, dtype=torch.float64)
        counts = {name: empty.to(torch.int64) for name in _COUNTED}
        totals = {"pairs": torch.zeros((), dtype=torch.int64), "steps": torch.zeros((), dtype=torch.int64)}
        return {**counts, **totals, **dict.fromkeys(self.traced, empty)}

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None

        modules, tasks = gramian.shape[-3], gramian.shape[-1]
        conflicts = conflicting_pairs(gramian)
        updated = torch.ones(modules, dtype=torch.bool)
        if self.conflict != "none":
            updated = module_mask(gramian, prefix=self.conflict == "prefix")

        counts = {"conflicts": conflicts, "applied": conflicts * updated, "moved": updated.to(torch.int64)}
        state = {
            **state,
            # The counts so far are empty before the first step, which brings the number of modules.
            **{name: count + state[name] if state[name].numel() else count for name, count in counts.items()},
            "pairs": state["pairs"] + tasks * (tasks - 1) // 2,
            "steps": state["steps"] + 1,
        }
        return updated.to(losses).unsqueeze(-1).expand(modules, tasks), state

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        pairs, steps = (state[name].clamp(min=1) for name in ("pairs", "steps"))
        ratios = {
            "conflict_ratio": state["conflicts"].to(torch.float64) / pairs,
            "applied_ratio": state["applied"].to(torch.float64) / pairs,
            "moved_ratio": state["moved"].to(torch.float64) / steps,
        }
        return {**{name: torch.zeros_like(state[name]) for name in (*_COUNTED, "pairs", "steps")}, **ratios}
