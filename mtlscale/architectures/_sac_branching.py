"""Actors and critics with a branch point for each task: layers before it are all tasks', those from it on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from mtlscale.architectures._sac_networks import TaskNetwork

LayersMaker = Callable[[], nn.ModuleList]  # fresh hidden layers, all of them


class Branching(TaskNetwork):
    """Common layers, each task's own layers and its output layer."""

    def __init__(self, make: LayersMaker, width: int, outputs: int, tasks: int) -> None:
        super().__init__()
        self.common = make()
        self.private = nn.ModuleList(make() for _ in range(tasks))
        self.heads = nn.ModuleList(nn.Linear(width, outputs) for _ in range(tasks))

    def features(self, rows: Tensor) -> list[Tensor]:
        """[t, B, ...] before each of the common layers, and behind the last."""
        found = [rows]
        for layer in self.common:
            found.append(layer(found[-1]))
        return found

    def branch(self, place: int, point: int, features: Tensor) -> Tensor:
        """What a task says of common features [B, ...] where it branches at a point, from 1."""
        layers = self.private[place]
        assert isinstance(layers, nn.ModuleList)
        for layer in layers[point - 1 :]:
            features = layer(features)
        found: Tensor = self.heads[place](features)
        return found

    def shared(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.common]

    def own(self, place: int) -> list[nn.Parameter]:
        return [*self.private[place].parameters(), *self.heads[place].parameters()]


class BranchedNetwork(Branching):
    """Each task branches at its point, 1..layers + 1."""

    def __init__(self, make: LayersMaker, width: int, outputs: int, points: Sequence[int]) -> None:
        super().__init__(make, width, outputs, len(points))
        self._points = list(points)
        self.common = self.common[: max(points) - 1]
        for layers, point in zip(self.private, points, strict=True):
            assert isinstance(layers, nn.ModuleList)
            for unused in range(point - 1):
                layers[unused] = nn.Identity()

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        before, points = self.features(rows), [self._points[place] for place in places]
        each = enumerate(zip(places, points, strict=True))
        return torch.stack([self.branch(place, point, before[point - 1][row]) for row, (place, point) in each])

    def points(self) -> list[int]:
        return self._points


class SearchedNetwork(Branching):
    """Each task's output is that of all its branch points, weighted by a softmax that is learned."""

    def __init__(self, make: LayersMaker, width: int, outputs: int, tasks: int) -> None:
        super().__init__(make, width, outputs, tasks)
        self.logits = nn.ParameterList(nn.Parameter(torch.zeros(len(self.common) + 1)) for _ in range(tasks))

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        before, found = self.features(rows), []
        for row, place in enumerate(places):
            each = torch.stack([self.branch(place, point, part[row]) for point, part in enumerate(before, 1)], -1)
            found.append((each * self.logits[place].softmax(0)).sum(-1))
        return torch.stack(found)

    def choices(self, place: int) -> list[nn.Parameter]:
        return [self.logits[place]]

    def points(self) -> list[int]:
        return [1 + int(logits.argmax()) for logits in self.logits]
