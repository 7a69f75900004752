"""Networks of actors and critics: rows of several tasks in, what each task's head says of them out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mtlscale.encoders import EncoderModule
from mtlscale.encoders.mlp import MLPModule
from mtlscale.spec import UserError


class TaskNetwork(nn.Module):
    """Rows [t, B, inputs] of the tasks at these places -> [t, B, outputs]."""

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        raise NotImplementedError

    def shared(self) -> list[list[nn.Parameter]]:
        """What several tasks move, by module, input side first."""
        return []

    def own(self, place: int) -> list[nn.Parameter]:
        """What one task alone moves, but for what chooses."""
        return []

    def choices(self, place: int) -> list[nn.Parameter]:
        """What chooses a task's part of the structure, in a search."""
        return []

    def points(self) -> list[int]:
        """The branch point of each task, where there is one."""
        return []


Role = Literal["actor", "critics"]
NetworkMaker = Callable[[Role, int, int], TaskNetwork]  # whose, numbers of an input, of an output


class WithHeads(TaskNetwork):
    """Hidden layers of all tasks, an output layer for each."""

    def __init__(self, layers: nn.ModuleList, width: int, outputs: int, tasks: int) -> None:
        super().__init__()
        self.layers = layers
        self.heads = nn.ModuleList(nn.Linear(width, outputs) for _ in range(tasks))

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        for layer in self.layers:
            rows = layer(rows)
        return torch.stack([self.heads[place](part) for place, part in zip(places, rows, strict=True)])

    def shared(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.layers]

    def own(self, place: int) -> list[nn.Parameter]:
        return list(self.heads[place].parameters())


class Whole(TaskNetwork):
    """One network, which knows the task by its input alone."""

    def __init__(self, layers: nn.ModuleList, width: int, outputs: int) -> None:
        super().__init__()
        self.layers = layers
        self.head = nn.Linear(width, outputs)

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        for layer in (*self.layers, self.head):
            rows = layer(rows)
        return rows

    def shared(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in (*self.layers, self.head)]


class Apart(TaskNetwork):
    """A network for each task."""

    def __init__(self, layers: Sequence[nn.ModuleList], width: int, outputs: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(nn.Sequential(*each, nn.Linear(width, outputs)) for each in layers)

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        return torch.stack([self.networks[place](part) for place, part in zip(places, rows, strict=True)])

    def own(self, place: int) -> list[nn.Parameter]:
        return list(self.networks[place].parameters())


def hidden_of(encoder: EncoderModule, who: str) -> tuple[tuple[int, ...], type[nn.Module]]:
    """The hidden sizes and the activation of an encoder of fully connected layers, which actor and critics have, too:
    critics read actions beside what it reads."""
    if not isinstance(encoder, MLPModule) or not encoder.widths:
        raise UserError(f"{who} builds actor and critics like an encoder of fully connected layers: set it to mlp")
    return encoder.widths, type(encoder.layers[2])


def layers_of(inputs: int, hidden: Sequence[int], activation: type[nn.Module]) -> nn.ModuleList:
    """Fully connected layers of these sizes."""
    sizes = itertools.pairwise((inputs, *hidden))
    return nn.ModuleList(nn.Sequential(nn.Linear(before, after), activation()) for before, after in sizes)
