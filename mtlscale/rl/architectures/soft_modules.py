"""Soft modules: networks of modules whose connections a routing network weights for each task and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders import EncoderModule
from mtlscale.rl.architectures.sac import SAC
from mtlscale.rl.environments import OBSERVATIONS, Simulated
from mtlscale.rl.sac.networks import Role, TaskNetwork, hidden_of, layers_of


class SoftModularNetwork(TaskNetwork):
    """Layers of modules; module i of a layer reads the outputs of the layer before, weighted by softmax_j p[i, j].

    p comes from the state's embedding times the task's: for the first pair of layers by one linear layer, for each
    later pair from the p before it, too. The input's one-hot vector is the task; its other numbers are the state (and
    the action).
    """

    def __init__(self, settings: SoftModules, outputs: int, tasks: int, encode: nn.ModuleList, size: int) -> None:
        super().__init__()
        layers, modules, width = settings.layers, settings.modules, settings.width

        self.tasks, self.modules_per_layer = tasks, modules
        self.encode = encode
        self.of_task = nn.Linear(tasks, size)
        sizes = [size] + [width] * (layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(nn.Linear(input_size, width) for _ in range(modules)) for input_size in sizes
        )

        pairs = layers - 1
        self.routes = nn.ModuleList(nn.Linear(size, modules**2) for _ in range(pairs))
        self.back = nn.ModuleList(nn.Linear(modules**2, size) for _ in range(pairs - 1))
        self.head = nn.Linear(width * modules, outputs)

    def forward(self, rows: Tensor, places: Sequence[int]) -> Tensor:
        task = rows[..., OBSERVATIONS : OBSERVATIONS + self.tasks]
        state = torch.cat([rows[..., :OBSERVATIONS], rows[..., OBSERVATIONS + self.tasks :]], -1)
        for layer in self.encode:
            state = layer(state)

        task_state = state * self.of_task(task)
        module_inputs, outputs = [state] * self.modules_per_layer, list[Tensor]()
        p: Tensor | None = None

        for depth, layer in enumerate(self.layers):
            assert isinstance(layer, nn.ModuleList)
            if depth:
                route_input = task_state if p is None else task_state * self.back[depth - 2](p.flatten(-2))
                p = self.routes[depth - 1](route_input.relu()).unflatten(-1, (self.modules_per_layer, -1))
                module_inputs = list((p.softmax(-1) @ torch.stack(outputs, -2)).unbind(-2))
            outputs = [module(module_input).relu() for module, module_input in zip(layer, module_inputs, strict=True)]

        result: Tensor = self.head(torch.cat(outputs, -1))
        return result

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
