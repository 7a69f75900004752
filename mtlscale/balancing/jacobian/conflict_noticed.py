"""ConflictNoticed: the sum of the task gradients in each module."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing.contract import ModuleBalancer, State
from mtlscale.config import knob
from mtlscale.solvers import conflicting_pairs, module_mask


class ConflictNoticed(ModuleBalancer):
    """The sum of the task gradients in each module, left out if tasks conflict in it or nearer the input.

    Source: Yue, Zhang, Liang (AAAI 2023). Gradients conflict where their inner product is negative. A module that is
    left out keeps its parameters bit by bit; heads and private modules are always updated. `conflict_ratio` is the
    share of task pairs that conflicted in each module, over the steps of an epoch.
    """

    name: ClassVar[str] = "conflict_noticed"
    source: ClassVar[str] = "Yue et al., AAAI 2023"
    cost: ClassVar[str] = "T+1 backwards"
    traced: ClassVar[tuple[str, ...]] = ("conflict_ratio",)

    conflict: str = knob(
        "prefix",
        choices=["prefix", "module", "none"],
        help="what is left out: all from the first module with a conflict on, each by itself, or nothing",
    )

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        empty = torch.zeros(0, dtype=torch.float64)
        return {"conflicts": empty.to(torch.int64), "pairs": torch.zeros((), dtype=torch.int64)} | {
            "conflict_ratio": empty
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None

        modules, tasks = gramian.shape[-3], gramian.shape[-1]
        conflicts, conflicts_so_far = conflicting_pairs(gramian), state["conflicts"]
        state = {
            **state,
            "conflicts": conflicts if conflicts_so_far.numel() == 0 else conflicts_so_far + conflicts,
            "pairs": state["pairs"] + tasks * (tasks - 1) // 2,
        }

        updated = torch.ones(modules, dtype=torch.bool)
        if self.conflict != "none":
            updated = module_mask(gramian, prefix=self.conflict == "prefix")
        return updated.to(losses).unsqueeze(-1).expand(modules, tasks), state

    def on_epoch_end(self, losses: Tensor, state: State) -> State:
        ratio = state["conflicts"].to(torch.float64) / state["pairs"].clamp(min=1)
        return {
            "conflicts": torch.zeros_like(state["conflicts"]),
            "pairs": torch.zeros_like(state["pairs"]),
            "conflict_ratio": ratio,
        }
