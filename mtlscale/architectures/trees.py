"""Trees of stages: tasks that share the first stages of an encoder and branch between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import MultiTaskModule, encoder_head, staged
from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, Memory, StagedModule

Tree = list[list[int]]  # stage -> task -> node: tasks of one node share that stage, and all before it


def stages_of(encoder: Callable[[], EncoderModule], name: str) -> int:
    """Return the number of stages of the encoder; raise `UserError` if it has none.

    The random generator's state is restored, so that later initialisations do not depend on this call.
    """
    with torch.random.fork_rng(devices=[]):
        return len(staged(encoder(), name).stages)


class Whole(StagedModule):
    """The adapter that makes an encoder without stages one of a single stage."""

    def __init__(self, encoder: EncoderModule) -> None:
        super().__init__()
        self.stages, self.widths = nn.ModuleList([encoder]), (encoder.features,)
        self.features, self.spatial, self.vectorised = encoder.features, encoder.spatial, encoder.vectorised

    def head(self, task: Task, dropout: float, features: int | None = None) -> nn.Module:
        inner: EncoderModule = self.stages[0]  # type: ignore[assignment]
        return inner.head(task, dropout, features)


def in_stages(encoder: EncoderModule) -> StagedModule:
    """Return the encoder, as a single stage if it has no stages of its own."""
    return encoder if isinstance(encoder, StagedModule) and len(encoder.stages) else Whole(encoder)


def tree_of_points(points: Sequence[int], stages: int) -> Tree:
    """Return the tree in which task t shares stages 1..p_t - 1 and has stages p_t.. of its own.

    A stage is shared by all tasks whose point lies behind it. `points` has each task's point in 1..stages + 1: 1 is a
    network of its own, stages + 1 shares everything.
    """
    for point in points:
        if not 1 <= point <= stages + 1:
            raise UserError(f"branch point {point} is outside 1..{stages + 1}: the encoder has {stages} stages")
    return checked([[0 if stage + 1 < p else task + 1 for task, p in enumerate(points)] for stage in range(stages)])


def tree_of_groups(groups: Sequence[Sequence[int]], stages: int) -> Tree:
    """Return the tree in which the tasks of a group share all stages, and no others."""
    group_of = {task: number for number, group in enumerate(groups) for task in group}
    return checked([[group_of[task] for task in range(len(group_of))] for _ in range(stages)])


def checked(tree: Sequence[Sequence[int]]) -> Tree:
    """Return the tree with the nodes of each stage numbered in the order of tasks.

    Raises:
        UserError: If tasks that are apart at one stage share a later one.
    """
    result: Tree = []

    for number, nodes in enumerate(tree):
        number_of: dict[int, int] = {}
        result.append([number_of.setdefault(node, len(number_of)) for node in nodes])
        if number:
            above = result[-2]
            for node in number_of.values():
                if len({above[task] for task, task_node in enumerate(result[-1]) if task_node == node}) > 1:
                    raise UserError(
                        f"tree: tasks that are apart at stage {number} share stage {number + 1}; give them different "
                        f"nodes there, or the same one before"
                    )

    return result


class Segment(nn.Module):
    """The stages from `first` to before `last` of one encoder, which the same tasks pass."""

    def __init__(self, encoder: StagedModule, first: int, last: int, tasks: frozenset[int]) -> None:
        super().__init__()
        encoder.keep(first, last)
        self.encoder, self.first, self.last, self.tasks = encoder, first, last, tasks

    def of_stage(self, stage: int) -> list[nn.Parameter]:
        """Return the parameters of a stage; none for a stage that it lacks."""
        return list(self.encoder.stages[stage].parameters())

    def forward(self, features: Tensor, memory: Memory) -> Tensor:
        for index in range(self.first, self.last):
            features = self.encoder.stage(index, features, memory)
        return features


def segments(encoder: Callable[[], EncoderModule], tree: Tree, name: str) -> list[Segment]:
    """Return the modules of a tree, each freshly made, in the order of the tasks that first pass them.

    A tree with one network per task has the encoders of single-task learning.
    """
    modules: list[Segment] = []
    made_keys: set[tuple[int, int]] = set()

    for task in range(len(tree[0])):
        first = 0
        while first < len(tree):
            tasks = _together(tree, first, task)
            last = first + 1
            while last < len(tree) and _together(tree, last, task) == tasks:
                last += 1
            if (first, min(tasks)) not in made_keys:
                made_keys.add((first, min(tasks)))
                modules.append(Segment(staged(encoder(), name), first, last, tasks))
            first = last

    return modules


def _together(tree: Tree, stage: int, task: int) -> frozenset[int]:
    return frozenset(candidate for candidate, node in enumerate(tree[stage]) if node == tree[stage][task])


class BranchedModule(MultiTaskModule):
    """The network of a tree: each node's stage runs once for the tasks that share it; a head per task."""

    def __init__(
        self, suite: TaskSuite, encoder: Callable[[], EncoderModule], tree: Tree, dropout: float, name: str = "branched"
    ) -> None:
        super().__init__()
        self.names, self.tree = tuple(task.name for task in suite.tasks), tree
        self.segments = nn.ModuleList(segments(encoder, tree, name))
        tasks = range(len(self.names))
        self.paths = [[s for s in self.parts() if task in s.tasks] for task in tasks]
        self.heads = nn.ModuleList(
            encoder_head(self.paths[index][-1].encoder, task, dropout) for index, task in enumerate(suite.tasks)
        )

        self.independent = all(len(segment.tasks) == 1 for segment in self.parts())
        self.vectorised = len(self.segments) == 1 and self.paths[0][0].encoder.vectorised

    def parts(self) -> list[Segment]:
        return list(self.segments)  # type: ignore[arg-type]

    def forward(self, batch: Batch) -> Outputs:
        indices = {task: self.names.index(task) for task in batch.tasks}
        encoder = self.parts()[0].encoder

        if len(self.segments) == 1:  # everything is shared: gradients may be taken at the representation
            representation = encoder(batch.inputs)
            branches = {task: representation.view_as(representation) for task in batch.tasks}
            return Outputs({t: self.heads[i](branches[t]) for t, i in indices.items()}, representation, branches)

        start, segment_states = (encoder.prepare(batch.inputs), Memory()), dict[Segment, tuple[Tensor, Memory]]()
        predictions = {}
        for task, index in indices.items():
            features, memory = start
            for segment in self.paths[index]:
                if segment not in segment_states:
                    path_memory = Memory(memory)  # belongs to this path alone
                    segment_states[segment] = (segment(features, path_memory), path_memory)
                features, memory = segment_states[segment]
            predictions[task] = self.heads[index](encoder.finish(features))

        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [p for segment in self.parts() if len(segment.tasks) > 1 for p in segment.parameters()]

    def shared_modules(self) -> list[list[nn.Parameter]]:
        return [
            [p for segment in self.parts() if len(segment.tasks) > 1 for p in segment.of_stage(stage)]
            for stage in range(len(self.tree))
        ]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        segment_parameters = [p for s in self.paths[index] if len(s.tasks) == 1 for p in s.parameters()]
        return [*segment_parameters, *self.heads[index].parameters()]

    def structure(self) -> dict[str, Any]:
        return {"tree": self.tree, "stage_parameters": stage_parameters(self.parts()), "tasks": list(self.names)}


def stage_parameters(parts: Sequence[Segment]) -> list[int]:
    """Return the number of parameters of each stage of an encoder."""
    counts: dict[int, int] = {}
    for segment in parts:
        for stage in range(segment.first, segment.last):
            counts[stage] = sum(p.numel() for p in segment.of_stage(stage))
    return [counts[stage] for stage in sorted(counts)]
