"""TAG: the affinities of tasks are measured while they share an encoder; then each group gets its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.hard.hps import HPSModule
from mtlscale.architectures.hooks import StepView
from mtlscale.architectures.phases import OptimizerSpec, Phase, PhaseOutput, Turn
from mtlscale.architectures.trees import BranchedModule, in_stages, stages_of, tree_of_groups
from mtlscale.balancing.losses.equal import Equal
from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule
from mtlscale.solvers import best_groups


class AffinityModule(HPSModule):
    """Hard sharing that gathers Z[i, j] = 1 - ℓ_j(θ - μ g_i) / ℓ_j(θ), how much a step of task i helps j."""

    affinity_sum: Tensor
    affinity_count: Tensor

    def __init__(self, suite: TaskSuite, encoder: EncoderModule, every: int, dropout: float) -> None:
        super().__init__(suite, encoder, dropout)
        self.every = every
        for name in ("affinity_sum", "affinity_count"):
            self.register_buffer(name, torch.zeros(len(self.names), len(self.names), dtype=torch.float64))

    def before_step(self, step: StepView) -> None:
        if step.main and step.number % self.every == 0:
            self.add_affinity(step.affinity())

    @torch.no_grad()
    def add_affinity(self, table: Tensor) -> None:
        """Add the affinities [T, T] measured in one step; NaN where a task has no label in it."""
        measured = table.isfinite()
        increments = torch.stack([torch.where(measured, table, 0.0), measured]).to(self.affinity_sum, non_blocking=True)
        self.affinity_sum += increments[0]
        self.affinity_count += increments[1]

    def affinity(self) -> list[list[float | None]]:
        """Return means over the steps measured so far, from row to column; None without a measurement."""
        rows = zip(self.affinity_sum.tolist(), self.affinity_count.tolist(), strict=True)
        return [[s / n if n else None for s, n in zip(sums, counts, strict=True)] for sums, counts in rows]

    def traces(self) -> dict[str, Any]:
        return {"affinity": self.affinity()}

    def phase_output(self) -> PhaseOutput:
        return {"affinity": self.affinity()}


class TAG(Architecture):
    """Task affinity grouping: hard sharing of all tasks to measure affinities, then hard sharing within each group.

    In phase `affinity` all tasks share an encoder, weighted equally; every so many steps the affinity of each pair is
    measured. Phase `retrain` considers every partition of the tasks into at most `groups` groups. It takes the one with
    the largest mean affinity onto each task and trains it from scratch, with an encoder per group.
    """

    name: ClassVar[str] = "tag"
    source: ClassVar[str] = "Fifty et al., NeurIPS 2021"
    results_version: ClassVar[int] = 2  # losses of 0 have no affinity

    groups: int = knob(2, low=1, search=(1, 2, 3), help="groups of tasks, at most")
    every: int = knob(10, low=1, help="steps between two measurements of affinity")
    search_epochs: int | None = knob(None, low=1, help="epochs of the affinity phase; none: the run's")
    search_seed: int | None = knob(0, low=0, help="seed of the affinity phase; none: the run's")
    search_lr: float | None = knob(None, low=0, open_low=True, help="its learning rate; none: the run's")
    found: str | None = knob(
        None, file=True, help="file of an affinity phase's result, to group by at once; none: measure"
    )

    def phases(self) -> tuple[Phase, ...]:
        training = {} if self.search_lr is None else {"lr": self.search_lr}
        optimizer = OptimizerSpec(training=training)
        turn = Turn(balancer=Equal(reduction="mean"), objective=False, optimizer=optimizer)
        affinity = Phase(
            name="affinity", turns=(turn,), epochs=self.search_epochs, choose="last", seed=self.search_seed
        )
        return (*(() if self.found else (affinity,)), Phase(name="retrain"))

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        self._check(suite)
        return AffinityModule(suite, encoder(), self.every, dropout)

    def build_next(
        self, phase: str, found: PhaseOutput, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float
    ) -> MultiTaskModule:
        self._check(suite)
        table = [[float("nan") if value is None else value for value in row] for row in found["affinity"]]

        def cut() -> EncoderModule:
            return in_stages(encoder())

        tree = tree_of_groups(best_groups(table, self.groups), stages_of(cut, self.name))
        return BranchedModule(suite, cut, tree, dropout, self.name)

    def _check(self, suite: TaskSuite) -> None:
        tasks = len(suite.tasks)
        if tasks < 2:
            raise UserError(f"{self.name} groups tasks, {suite.name} has one; use hps")
        if self.groups > tasks:
            raise UserError(f"{self.name}: groups is {self.groups}, {suite.name} has {tasks} tasks; ask for fewer")
