"""The search network of CoNAL and DSMTL-AL: every branch point at once, mixed by learned probabilities."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mtlscale.architectures.branching._paths import Path, passed
from mtlscale.architectures.branching._pretraining import SearchModule
from mtlscale.architectures.contract import encoder_head, staged
from mtlscale.architectures.phases import PhaseOutput
from mtlscale.architectures.structure_search import CHOICE, WEIGHTS
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, StagedModule
from mtlscale.solvers import first_largest

SHARED = "shared"  # key of the shared encoder; private encoders have their task's index


def path_of(point: int, own: Any, stages: int) -> Path:
    """Return the path of branch point p: stages 1..p - 1 are shared, stages p.. are those of `own`."""
    return (SHARED,) * (point - 1) + (own,) * (stages + 1 - point)


def mixtures(
    shared: StagedModule,
    private: Mapping[Any, StagedModule],
    probabilities: Mapping[Any, Tensor],
    inputs: Tensor,
    points: Sequence[int] = (),
) -> dict[Any, Tensor]:
    """Return each task's mean Σ_p probabilities[p] h_t(f_S(x, p), p) of the features of all its branch points.

    The shared stages run once for all tasks, a task's private stage q once for each of the points up to q.

    Args:
        private: Task -> its encoder.
        probabilities: Task -> probabilities [points], in the order of the points.
        inputs: Inputs [B, ...].
        points: The branch points; default: 1..stages + 1.
    """
    stages = len(shared.stages)
    points = points or range(1, stages + 2)

    paths = {task: [path_of(point, task, stages) for point in points] for task in probabilities}
    features = passed(
        {SHARED: shared, **private}, [path for task_paths in paths.values() for path in task_paths], inputs
    )
    return {
        task: mean(probabilities[task], [features[path] for path in task_paths]) for task, task_paths in paths.items()
    }


def mean(probabilities: Tensor, features: Sequence[Tensor]) -> Tensor:
    """Return Σ_p probabilities[p] features[p]."""
    stacked = torch.stack(tuple(features))
    mixed: Tensor = torch.tensordot(probabilities.to(stacked.dtype), stacked, 1)
    return mixed


class Supernet(SearchModule):
    """The search network: a shared encoder and, for each task, a copy of it, logits and a head.

    The logits [points] are over the task's branch points. `points` are the candidate branch points, from 1 up to the
    number of stages + 1; none: all of them.
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

    def start_encoders(self) -> list[nn.Module]:
        return [self.shared, *self.private]

    def encoder_of(self, place: int) -> StagedModule:
        """Return a task's private encoder."""
        encoder = self.private[place]
        assert isinstance(encoder, StagedModule)
        return encoder

    def probabilities(self, place: int) -> Tensor:
        """Return the probabilities [points] of a task."""
        probabilities: Tensor = self.alpha[place].softmax(0)
        return probabilities

    def features(self, inputs: Tensor, places: Sequence[int]) -> dict[int, Tensor]:
        """Return the mixed features of these tasks for inputs of one stream."""
        private = {index: self.encoder_of(index) for index in places}
        return mixtures(
            self.shared, private, {index: self.probabilities(index) for index in places}, inputs, self.points
        )

    def forward(self, batch: Batch) -> Outputs:
        indices = {task: self.names.index(task) for task in batch.tasks}
        mixed = self.features(batch.inputs, list(indices.values()))
        return Outputs({task: self.heads[index](mixed[index]) for task, index in indices.items()})

    def shared_parameters(self) -> list[nn.Parameter]:
        return list(self.shared.parameters())

    def shared_modules(self) -> list[list[nn.Parameter]]:
        """Return the shared stages between one candidate branch point and the next."""
        stage_parameters = [list(stage.parameters()) for stage in self.shared.stages]
        between = itertools.pairwise(self.points)
        return [[p for stage in stage_parameters[start - 1 : end - 1] for p in stage] for start, end in between]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [self.alpha[index], *self.private[index].parameters(), *self.heads[index].parameters()]

    def groups(self) -> dict[str, list[nn.Parameter]]:
        choices = list(self.alpha)
        choice_ids = {id(p) for p in choices}
        return {WEIGHTS: [p for p in self.parameters() if id(p) not in choice_ids], CHOICE: choices}

    def found_points(self) -> dict[str, int]:
        """Return each task's likeliest branch point; of equally likely ones, the one that shares more."""
        likeliest_points = {}
        for index, name in enumerate(self.names):
            last = len(self.points) - 1
            likeliest_points[name] = self.points[last - int(first_largest(self.alpha[index].detach().flip(0)))]
        return likeliest_points

    def phase_output(self) -> PhaseOutput:
        return {"points": self.found_points()}

    @torch.no_grad()
    def traces(self) -> dict[str, Any]:
        """Return `branching`: task -> a probability for every branch point of the encoder."""
        all_points = range(1, len(self.shared.stages) + 2)
        table = {}
        for index, name in enumerate(self.names):
            probability_of = dict(zip(self.points, self.probabilities(index).tolist(), strict=True))
            table[name] = [probability_of.get(point, 0.0) for point in all_points]
        return {"branching": table}
