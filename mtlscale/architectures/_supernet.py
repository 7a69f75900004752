"""The network that CoNAL and DSMTL-AL search in: every branch point at once, mixed by learned probabilities."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures._base import MultiTaskModule, encoder_head, staged
from mtlscale.architectures._paths import Path, passed
from mtlscale.architectures._phases import Found
from mtlscale.architectures._search import CHOICE, WEIGHTS
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, StagedModule
from mtlscale.spec import TaskSuite

SHARED = "shared"  # the key of the shared encoder; private ones have their task's place


def path_of(point: int, own: Any, stages: int) -> Path:
    """The way of branch point p: stages 1..p - 1 shared, p.. those of `own`."""
    return (SHARED,) * (point - 1) + (own,) * (stages + 1 - point)


def mixtures(
    shared: StagedModule,
    private: Mapping[Any, StagedModule],
    probabilities: Mapping[Any, Tensor],
    inputs: Tensor,
    points: Sequence[int] = (),
) -> dict[Any, Tensor]:
    """Inputs [B, ...] -> of each task the mean Σ_p probabilities[p] h_t(f_S(x, p), p) of the features of all its branch
    points.

    private: task -> its encoder; probabilities: task -> [points] in their order; points: default is 1..stages + 1.
    The shared stages run once for all, a task's private stage q once for each of the points up to q.
    """
    stages = len(shared.stages)
    points = points or range(1, stages + 2)
    paths = {task: [path_of(point, task, stages) for point in points] for task in probabilities}
    features = passed({SHARED: shared, **private}, [path for ways in paths.values() for path in ways], inputs)
    return {task: mean(probabilities[task], [features[path] for path in ways]) for task, ways in paths.items()}


def mean(probabilities: Tensor, features: Sequence[Tensor]) -> Tensor:
    """Σ_p probabilities[p] features[p]."""
    together = torch.stack(tuple(features))
    mixed: Tensor = torch.tensordot(probabilities.to(together.dtype), together, 1)
    return mixed


class Supernet(MultiTaskModule):
    """A shared encoder and for each task a copy of it, logits [points] over its branch points, and a head.

    points: the branch points in question, from 1 up to the number of stages + 1; none: all of them.
    """

    def __init__(
        self,
        suite: TaskSuite,
        encoder: Callable[[], EncoderModule],
        dropout: float,
        name: str,
        points: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.shared = staged(encoder(), name)
        self.private = nn.ModuleList(copy.deepcopy(self.shared) for _ in suite.tasks)
        self.points = tuple(points or range(1, len(self.shared.stages) + 2))
        self.alpha = nn.ParameterList(nn.Parameter(torch.zeros(len(self.points))) for _ in suite.tasks)
        self.heads = nn.ModuleList(encoder_head(self.shared, task, dropout) for task in suite.tasks)

    def encoder_of(self, place: int) -> StagedModule:
        """A task's private encoder."""
        found = self.private[place]
        assert isinstance(found, StagedModule)
        return found

    def probabilities(self, place: int) -> Tensor:
        """[points] of a task."""
        found: Tensor = self.alpha[place].softmax(0)
        return found

    def features(self, inputs: Tensor, places: Sequence[int]) -> dict[int, Tensor]:
        """Inputs of one stream -> the mixed features of these tasks."""
        private = {place: self.encoder_of(place) for place in places}
        return mixtures(
            self.shared, private, {place: self.probabilities(place) for place in places}, inputs, self.points
        )

    def forward(self, batch: Batch) -> Outputs:
        places = {task: self.names.index(task) for task in batch.tasks}
        mixed = self.features(batch.inputs, list(places.values()))
        return Outputs({task: self.heads[place](mixed[place]) for task, place in places.items()})

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.shared.parameters())

    def shared_modules(self) -> list[list[nn.Parameter]]:
        """What lies between one branch point in question and the next."""
        of_stage = [list(stage.parameters()) for stage in self.shared.stages]
        between = itertools.pairwise(self.points)
        return [[p for stage in of_stage[start - 1 : end - 1] for p in stage] for start, end in between]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        place = self.names.index(task)
        return [self.alpha[place], *self.private[place].parameters(), *self.heads[place].parameters()]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        chosen = list(self.alpha)
        known = {id(p) for p in chosen}
        return {WEIGHTS: [p for p in self.parameters() if id(p) not in known], CHOICE: chosen}

    def found_points(self) -> dict[str, int]:
        """Each task's likeliest branch point, of equals the one that shares more."""
        found = {}
        for place, name in enumerate(self.names):
            last = len(self.points) - 1
            found[name] = self.points[last - int(self.alpha[place].detach().flip(0).argmax())]
        return found

    def hand_over(self) -> Found:
        return {"points": self.found_points()}

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        """`branching`: task -> a probability for every branch point of the encoder."""
        every = range(1, len(self.shared.stages) + 2)
        table = {}
        for place, name in enumerate(self.names):
            known = dict(zip(self.points, self.probabilities(place).tolist(), strict=True))
            table[name] = [known.get(point, 0.0) for point in every]
        return {"branching": table}
