"""PCD: a main task's direction, which may not harm its auxiliary tasks."""

from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.balancing import hints as _hints
from mtlscale.balancing.contract import GramianBalancer, State
from mtlscale.balancing.failure_counters import count, counters
from mtlscale.config import UserError, knob
from mtlscale.solvers import primary_weights


class PCD(GramianBalancer):
    """The update nearest to a main task's gradient that still gains on every other task, as long as that gradient.

    Source: TMLR 2026, as in TorchJD's PCD. Gradients are divided by the root of a moving average of their squared
    norms. The quadratic program is solved exactly, as a least-distance problem. In steps without labels of the main
    task the others weigh the same. `failures` counts steps whose constraints no update meets; they follow the main
    task.
    """

    name: ClassVar[str] = "pcd"
    source: ClassVar[str] = "TMLR 2026, as in TorchJD"
    results_version: ClassVar[int] = 2  # tasks at rest are left out; bounds hold in the gradients' precision
    cost: ClassVar[str] = "T backwards"
    heads = "sum"
    per_task: ClassVar[tuple[str, ...]] = ("primary", "squares", "steps")
    counters: ClassVar[tuple[str, ...]] = ("failures",)
    hints: ClassVar[tuple[str, ...]] = ("precision",)
    batchable: ClassVar[bool] = True

    main: int = knob(0, low=0, help="index of the main task, from 0")
    tau: float = knob(0.02, low=0, high=1, search=(1e-3, 0.5, "log"), help="τ, the others' part of their own descent")
    beta: float = knob(0.999, low=0, high=1, open_high=True, help="β of the average of squared norms")
    eps: float = knob(1e-8, low=0, open_low=True, help="added to the average before its root is taken")

    def init(self, tasks: int, *, seed: int = 0, batch: tuple[int, ...] = ()) -> State:
        if self.main >= tasks:
            raise UserError(f"{self.name}: main = {self.main} must name a task from 0 to {tasks - 1}")
        primary = torch.zeros(*batch, tasks, dtype=torch.float64)
        primary[..., self.main] = 1.0
        steps = torch.zeros(*batch, tasks, dtype=torch.int64)
        return {
            "primary": primary,
            "squares": torch.zeros_like(primary),
            "steps": steps,
            **_hints.precision(batch),
            **counters(batch, "failures"),
        }

    def __call__(self, losses: Tensor, gramian: Tensor | None, state: State) -> tuple[Tensor, State]:
        assert gramian is not None
        steps = state["steps"] + 1
        squares = self.beta * state["squares"] + (1.0 - self.beta) * gramian.diagonal(dim1=-2, dim2=-1)
        sizes = (squares / (1.0 - self.beta ** steps.to(squares)) + self.eps).sqrt()
        solution = primary_weights(gramian, sizes, state["primary"], self.tau, precision=state["precision"])
        after = count(state, failures=~solution.converged)
        return solution.weights.to(losses), {**after, "squares": squares, "steps": steps}
