"""Networks that branch by hand: tasks share the encoder's first stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.trees import (
    BranchedModule,
    Tree,
    checked,
    in_stages,
    stages_of,
    tree_of_groups,
    tree_of_points,
)
from mtlscale.config import TaskSuite, UserError, knob, nearest
from mtlscale.encoders import EncoderModule


class Branched(Architecture):
    """Branched network: a tree of stages given by hand.

    `points` has for each task, in the suite's order, its branch point p in 1..P, as in tables of learned branch points:
    stages 1..p - 1 are shared, p..P - 1 are the task's own; P, the number of stages + 1, shares everything. `tree` is
    more general: for each stage, input side first, it has a node per task, "0 0 1" if the first two tasks share it.
    `groups` names tasks: the tasks of a group share all stages, and no others; the encoder needs no stages. Without any
    of them, everything is shared.
    """

    name: ClassVar[str] = "branched"
    source: ClassVar[str] = "own statement of what searched architectures retrain"
    batchable: ClassVar[bool] = True

    points: tuple[int, ...] = knob((), low=1, help="branch point of each task, 1..stages + 1")
    tree: tuple[str, ...] = knob((), help='for each stage a node per task, such as "0 0 1"')
    groups: tuple[str, ...] = knob((), help='tasks that share an encoder, such as "books, dvd"')

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if self.groups:
            return self._grouped(suite, lambda: in_stages(encoder()), dropout)
        return BranchedModule(suite, encoder, self._tree(suite, stages_of(encoder, self.name)), dropout, self.name)

    def _grouped(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        if self.points or self.tree:
            raise UserError(f"{self.name}: groups and points or tree both say where tasks branch; drop one of them")

        names = [task.name for task in suite.tasks]
        named = [[name.strip() for name in group.split(",")] for group in self.groups]
        grouped_names = [name for group in named for name in group]

        for name in grouped_names:
            if name not in names:
                raise UserError(f"{self.name}: groups name {name!r}, which is no task; {nearest(name, names)}")
            if grouped_names.count(name) > 1:
                raise UserError(f"{self.name}: groups name {name} twice; leave it in one of them")

        if missing := [name for name in names if name not in grouped_names]:
            raise UserError(f"{self.name}: groups leave out {', '.join(missing)}; each task needs one, if of its own")

        group_indices = [[names.index(name) for name in group] for group in named]
        return BranchedModule(
            suite, encoder, tree_of_groups(group_indices, stages_of(encoder, self.name)), dropout, self.name
        )

    def _tree(self, suite: TaskSuite, stages: int) -> Tree:
        if self.points and self.tree:
            raise UserError(f"{self.name}: points and tree both say where tasks branch; drop one of them")

        if not self.tree:
            points = self.points or (stages + 1,) * len(suite.tasks)
            self._check_length("points", len(points), suite)
            return tree_of_points(points, stages)

        if len(self.tree) != stages:
            raise UserError(
                f"{self.name}: tree has {len(self.tree)} stages, the encoder {stages}; write one entry for each"
            )

        levels = []
        for stage, text in enumerate(self.tree, 1):
            try:
                levels.append([int(node) for node in text.split()])
            except ValueError:
                raise UserError(f"{self.name}: tree, stage {stage}: {text!r} should be whole numbers") from None
            self._check_length(f"tree, stage {stage}", len(levels[-1]), suite)

        return checked(levels)

    def _check_length(self, what: str, given: int, suite: TaskSuite) -> None:
        if given != len(suite.tasks):
            names = ", ".join(task.name for task in suite.tasks)
            raise UserError(f"{self.name}: {what} has {given} entries; give one to each task of {suite.name}: {names}")
