"""PLE: layers of experts, shared and of each task, mixed by gates; a layer's outputs feed the next layer's experts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import Architecture, MultiTaskModule, pooled
from mtlscale.architectures.experts.mmoe import mix
from mtlscale.architectures.towers import bank, uniform
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class Extraction(nn.Module):
    """The layer of experts below the last, which serves every task on every input.

    It has to, since its shared output depends on all experts. own [T, B, I] and common [B, I] (on maps with positions
    behind) become the same with the width of the experts.
    """

    def __init__(self, encoder: EncoderModule, tasks: int, own: int, shared: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.own, self.tasks = own, tasks
        self.task_experts = bank(encoder, tasks * own, inputs, outputs)
        self.shared_experts = bank(encoder, shared, inputs, outputs)
        self.gates = nn.ParameterList(uniform(inputs, tasks, inputs, own + shared).unbind())
        self.shared_gate = nn.Parameter(uniform(inputs, inputs, tasks * own + shared))

    def forward(self, own: Tensor, common: Tensor, index: list[int]) -> tuple[Tensor, Tensor]:
        """Return the own outputs of some tasks, [len(index), B, O], and the shared output [B, O].

        Args:
            own: Own inputs [T, B, I] of all tasks.
            common: Shared input [B, I].
            index: Indices of the tasks whose own outputs are returned.
        """
        task_outputs = self.task_experts(own.repeat_interleave(self.own, 0))
        shared = self.shared_experts(common)
        by_task = task_outputs.unflatten(0, (self.tasks, self.own))
        mixed = [mix(torch.cat([by_task[i], shared]), pooled(own[i]) @ self.gates[i]) for i in index]
        return torch.stack(mixed), mix(torch.cat([task_outputs, shared]), pooled(common) @ self.shared_gate)


class PLEModule(MultiTaskModule):
    """The network of extraction layers and a last layer of experts, with a gate and a head for each task."""

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, layers: int, own: int, shared: int, top: int, dropout: float
    ) -> None:
        super().__init__()
        size = len(suite.tasks)
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder

        widths = [encoder.features, *[top] * layers]
        self.extractions = nn.ModuleList(
            Extraction(encoder, size, own, shared, inputs, outputs)
            for inputs, outputs in itertools.pairwise(widths[:-1])
        )

        self.shared_experts = bank(encoder, shared, widths[-2], top)
        self.task_experts = nn.ModuleList(bank(encoder, own, widths[-2], top) for _ in suite.tasks)
        self.gates = nn.ModuleList(nn.Linear(widths[-2], own + shared, bias=False) for _ in suite.tasks)
        self.heads = nn.ModuleList(encoder.head(task, dropout, top) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        common = self.encoder(batch.inputs)
        index = [self.names.index(task) for task in batch.tasks]

        task_features = common.expand(len(self.names), *common.shape)
        for layer, extraction in enumerate(self.extractions):
            below_last = layer == len(self.extractions) - 1
            task_features, common = extraction(
                task_features, common, index if below_last else list(range(len(self.names)))
            )
        if not len(self.extractions):
            task_features = task_features[: len(index)]

        shared = self.shared_experts(common)
        predictions = {}
        for task, i, features in zip(batch.tasks, index, task_features.unbind(), strict=True):
            mixed = mix(torch.cat([self.task_experts[i](features), shared]), self.gates[i](pooled(features)))
            predictions[task] = self.heads[i](mixed)

        return Outputs(predictions)

    def shared_parameters(self) -> list[nn.Parameter]:
        last_gate_ids = {id(gate) for gate in self._last_gates()}
        below = [p for extraction in self.extractions for p in extraction.parameters() if id(p) not in last_gate_ids]
        return [*self.encoder.parameters(), *below, *self.shared_experts.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        modules = (self.task_experts[index], self.gates[index], self.heads[index])
        return [*self._last_gates()[index : index + 1], *(p for module in modules for p in module.parameters())]

    def _last_gates(self) -> list[nn.Parameter]:
        """Return the tasks' gates in the layer before the last; each feeds only its own task's last layer."""
        return list(self.extractions[-1].gates) if len(self.extractions) else []  # type: ignore[arg-type]


class PLE(Architecture):
    """Progressive layered extraction: layers of shared and task experts, gated anew in each; one layer is `cgc`."""

    name: ClassVar[str] = "ple"
    source: ClassVar[str] = "Tang et al., RecSys 2020"
    batchable: ClassVar[bool] = True

    layers: int = knob(2, low=1, high=8, help="layers of experts")
    own: int = knob(1, low=1, search=(1, 2, 4), help="experts of each task, per layer")
    shared: int = knob(2, low=1, search=(1, 2, 4), help="shared experts, per layer")
    top: int = knob(32, low=1, search=(4, 8, 16, 32, 64), help="width of an expert")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return PLEModule(suite, encoder(), self.layers, self.own, self.shared, self.top, dropout)
