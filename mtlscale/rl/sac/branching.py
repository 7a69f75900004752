"""Actors and critics with a branch point per task: layers before it are shared, the layers from it on are private."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mtlscale.rl.sac.networks import TaskNetwork
from mtlscale.solvers import first_largest

LayersMaker = Callable[[], nn.ModuleList]  # returns all hidden layers, freshly initialised


class Branching(TaskNetwork):
    """Base of branching networks: shared layers, each task's own layers, and its output layer."""

    def __init__(self, make: LayersMaker, width: int, outputs: int, tasks: int) -> None:
        super().__init__()
        self.common = make()
        self.private = nn.ModuleList(make() for _ in range(tasks))
        self.heads = nn.ModuleList(nn.Linear(width, outputs) for _ in range(tasks))

    def features(self, rows: Tensor) -> list[Tensor]:
        """Return the features [t, B, ...] before each of the shared layers, and after the last."""
        layer_inputs = [rows]
        for layer in self.common:
            layer_inputs.append(layer(layer_inputs[-1]))
        return layer_inputs

    def branch(self, task: int, point: int, features: Tensor) -> Tensor:
        """Return a task's outputs for shared features [B, ...].

        Args:
            point: Branch point, from 1, at which the task leaves the shared layers.
        """
        layers = self.private[task]
        assert isinstance(layers, nn.ModuleList)
        for layer in layers[point - 1 :]:
            features = layer(features)
        outputs: Tensor = self.heads[task](features)
        return outputs

    def shared(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.common]

    def parameters_of(self, task: int) -> list[nn.Parameter]:
        return [*self.private[task].parameters(), *self.heads[task].parameters()]


class BranchedNetwork(Branching):
    """The network in which each task branches at its point, 1..layers + 1."""

    def __init__(self, make: LayersMaker, width: int, outputs: int, points: Sequence[int]) -> None:
        super().__init__(make, width, outputs, len(points))
        self._points = list(points)
        self.common = self.common[: max(points) - 1]
        for layers, point in zip(self.private, points, strict=True):
            assert isinstance(layers, nn.ModuleList)
            for unused in range(point - 1):
                layers[unused] = nn.Identity()

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        layer_inputs, points = self.features(rows), [self._points[task] for task in places]
        branches = enumerate(zip(places, points, strict=True))
        return torch.stack([self.branch(task, point, layer_inputs[point - 1][row]) for row, (task, point) in branches])

    def points(self) -> list[int]:
        return self._points


class SearchedNetwork(Branching):
    """The network whose task outputs are those of all branch points, weighted by a learned softmax."""

    def __init__(self, make: LayersMaker, width: int, outputs: int, tasks: int) -> None:
        super().__init__(make, width, outputs, tasks)
        self.logits = nn.ParameterList(nn.Parameter(torch.zeros(len(self.common) + 1)) for _ in range(tasks))

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        layer_inputs, task_outputs = self.features(rows), []
        for row, task in enumerate(places):
            branch_outputs = torch.stack(
                [self.branch(task, point, features[row]) for point, features in enumerate(layer_inputs, 1)], -1
            )
            task_outputs.append((branch_outputs * self.logits[task].softmax(0)).sum(-1))
        return torch.stack(task_outputs)

    def choices(self, task: int) -> list[nn.Parameter]:
        return [self.logits[task]]

    def points(self) -> list[int]:
        return [1 + int(first_largest(logits.detach())) for logits in self.logits]
