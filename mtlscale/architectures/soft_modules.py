"""Soft modules: networks of modules whose connections a routing network weights for each task and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures._sac_networks import Role, TaskNetwork, hidden_of, layers_of
from mtlscale.architectures.sac import SAC
from mtlscale.encoders import EncoderModule
from mtlscale.environments import OBSERVATIONS, Simulated
from mtlscale.spec import TaskSuite, UserError, knob


class SoftModularNetwork(TaskNetwork):
    """Layers of modules; module i of a layer reads the outputs of the layer before, weighted by softmax_j p[i, j].

    p comes from the state's embedding times the task's: of the first pair of layers by one linear layer, of each later
    pair from the p before it, too. The input's one-hot vector is the task; the rest is the state (and the action).
    """

    def __init__(self, settings: SoftModules, outputs: int, tasks: int, encode: nn.ModuleList, size: int) -> None:
        super().__init__()
        layers, modules, width = settings.layers, settings.modules, settings.width
        self.tasks, self.modules_per_layer = tasks, modules
        self.encode = encode
        self.of_task = nn.Linear(tasks, size)
        sizes = [size] + [width] * (layers - 1)
        self.layers = nn.ModuleList(nn.ModuleList(nn.Linear(before, width) for _ in range(modules)) for before in sizes)
        pairs = layers - 1
        self.routes = nn.ModuleList(nn.Linear(size, modules**2) for _ in range(pairs))
        self.back = nn.ModuleList(nn.Linear(modules**2, size) for _ in range(pairs - 1))
        self.head = nn.Linear(width * modules, outputs)

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        task = rows[..., OBSERVATIONS : OBSERVATIONS + self.tasks]
        state = torch.cat([rows[..., :OBSERVATIONS], rows[..., OBSERVATIONS + self.tasks :]], -1)
        for layer in self.encode:
            state = layer(state)
        asked = state * self.of_task(task)
        given, outputs = [state] * self.modules_per_layer, list[Tensor]()
        p: Tensor | None = None
        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, nn.ModuleList)
            if depth:
                known = asked if p is None else asked * self.back[depth - 2](p.flatten(-2))
                p = self.routes[depth - 1](known.relu()).unflatten(-1, (self.modules_per_layer, -1))
                given = list((p.softmax(-1) @ torch.stack(outputs, -2)).unbind(-2))
            outputs = [module(each).relu() for module, each in zip(layer, given, strict=True)]
        found: Tensor = self.head(torch.cat(outputs, -1))
        return found

    def shared(self) -> list[list[nn.Parameter]]:
        parts = [self.encode, self.of_task, *self.layers, nn.ModuleList([self.routes, self.back]), self.head]
        return [list(part.parameters()) for part in parts]


class SoftModules(SAC):
    """Soft modularisation: SAC whose actor and critics are modules with soft connections, everything shared."""

    name: ClassVar[str] = "soft_modules"
    source: ClassVar[str] = "Yang et al., NeurIPS 2020"

    layers: int = knob(2, low=2, help="layers of modules")
    modules: int = knob(2, low=1, help="modules of a layer")
    width: int = knob(128, low=1, help="units of a module")

    def network(
        self, suite: TaskSuite, told: Simulated, encoder: EncoderModule, role: Role, inputs: int, outputs: int
    ) -> TaskNetwork:
        if not told.task_id:
            raise UserError("soft_modules routes by the task's one-hot vector: prepare the set with task_id")
        hidden, activation = hidden_of(encoder, self.name)
        tasks = len(told.tasks)
        encode = layers_of(inputs - tasks, hidden, activation)
        return SoftModularNetwork(self, outputs, tasks, encode, hidden[-1])
