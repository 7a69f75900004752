"""The networks of actors and critics: rows of several tasks in, the outputs of each task's head out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from mtlscale.config import UserError
from mtlscale.encoders import EncoderModule
from mtlscale.encoders.table.mlp import MLPModule


class TaskNetwork(nn.Module):
    """Base class of networks that map rows [t, B, inputs] of the tasks at these places -> [t, B, outputs]."""

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        raise NotImplementedError

    def shared(self) -> list[list[nn.Parameter]]:
        """Return the parameters that several tasks move, by module, input side first."""
        return []

    def parameters_of(self, task: int) -> list[nn.Parameter]:
        """Return the parameters that one task alone moves, without the architecture parameters."""
        return []

    def choices(self, task: int) -> list[nn.Parameter]:
        """Return the architecture parameters of a task's part of the structure, in a search."""
        return []

    def points(self) -> list[int]:
        """Return the branch point of each task, if there are any."""
        return []


Role = Literal["actor", "critics"]
NetworkMaker = Callable[[Role, int, int], TaskNetwork]  # (role, input size, output size) -> network


class WithHeads(TaskNetwork):
    """The network with hidden layers of all tasks and an output layer for each."""

    def __init__(self, layers: nn.ModuleList, width: int, outputs: int, tasks: int) -> None:
        super().__init__()
        self.layers = layers
        self.heads = nn.ModuleList(nn.Linear(width, outputs) for _ in range(tasks))

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        for layer in self.layers:
            rows = layer(rows)
        return torch.stack([self.heads[task](features) for task, features in zip(places, rows, strict=True)])

    def shared(self) -> list[list[nn.Parameter]]:
        return [list(layer.parameters()) for layer in self.layers]

    def parameters_of(self, task: int) -> list[nn.Parameter]:
        return list(self.heads[task].parameters())


class SharedNetwork(TaskNetwork):
    """The network that all tasks share, which knows the task by its input alone."""

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


class SeparateNetworks(TaskNetwork):
    """The networks of tasks that share nothing, one for each."""

    def __init__(self, layers: Sequence[nn.ModuleList], width: int, outputs: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(nn.Sequential(*task_layers, nn.Linear(width, outputs)) for task_layers in layers)

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        return torch.stack([self.networks[task](task_rows) for task, task_rows in zip(places, rows, strict=True)])

    def parameters_of(self, task: int) -> list[nn.Parameter]:
        return list(self.networks[task].parameters())


def hidden_of(encoder: EncoderModule, method: str) -> tuple[tuple[int, ...], type[nn.Module]]:
    """Return the hidden sizes and the activation of an encoder of fully connected layers.

    Actors and critics have the same; critics read actions in addition to the encoder's input.
    """
    if not isinstance(encoder, MLPModule) or not encoder.widths:
        raise UserError(f"{method} builds actor and critics like an encoder of fully connected layers: set it to mlp")
    return encoder.widths, type(encoder.layers[2])


def layers_of(inputs: int, hidden: Sequence[int], activation: type[nn.Module]) -> nn.ModuleList:
    """Build fully connected layers of these sizes."""
    sizes = itertools.pairwise((inputs, *hidden))
    return nn.ModuleList(nn.Sequential(nn.Linear(width_in, width_out), activation()) for width_in, width_out in sizes)
