"""Parallel networks, one per task, that exchange features after every stage of their encoders."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import MultiTaskModule, encoder_head
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import MapStagedModule, Memory


class ParallelModule(MultiTaskModule):
    """Base class of parallel networks with an encoder and a head per task.

    Subclasses define how the tasks' features are exchanged after a stage. Encoders and exchanges are shared, as they
    reach every task through the next exchange. A task's exchange after the last stage and its head are its own.
    """

    def __init__(self, suite: TaskSuite, encoders: Sequence[MapStagedModule], dropout: float) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoders = nn.ModuleList(encoders)
        self.heads = nn.ModuleList(encoder_head(e, t, dropout) for e, t in zip(encoders, suite.tasks, strict=True))
        self.stages = len(encoders[0].stages)

    def exchange(self, stage: int, task: int, features: Tensor) -> Tensor:
        """Exchange the features [T, B, C, h, w] of all tasks after a stage -> those of one task, [B, C, h, w]."""
        raise NotImplementedError

    def exchange_parameters(self, stage: int, task: int) -> list[nn.Parameter]:
        """Return the parameters that `exchange` uses for this task alone."""
        raise NotImplementedError

    def conclude(self, task: int, history: list[Tensor]) -> Tensor:
        """Return what the task's encoder finishes with, given its exchanged features after every stage.

        By default these are the features after the last stage.
        """
        return history[-1]

    def conclude_parameters(self, task: int) -> list[nn.Parameter]:
        return []

    def forward(self, batch: Batch) -> Outputs:
        encoders: list[MapStagedModule] = list(self.encoders)  # type: ignore[arg-type]
        memories = [Memory() for _ in encoders]
        features = [encoder.prepare(batch.inputs) for encoder in encoders]
        histories: list[list[Tensor]] = [[] for _ in encoders]

        task_indices = [self.names.index(task) for task in batch.tasks]

        for stage in range(self.stages):
            stage_outputs = torch.stack(
                [e.stage(stage, f, m) for e, f, m in zip(encoders, features, memories, strict=True)]
            )
            is_last = stage == self.stages - 1
            for task in task_indices if is_last else range(len(encoders)):
                features[task] = self.exchange(stage, task, stage_outputs)
                histories[task].append(features[task])

        return Outputs(
            {
                name: self.heads[task](encoders[task].finish(self.conclude(task, histories[task])))
                for name, task in zip(batch.tasks, task_indices, strict=True)
            }
        )

    def shared_parameters(self) -> list[nn.Parameter]:
        exchanges = [
            parameter
            for stage in range(self.stages - 1)
            for task in range(len(self.names))
            for parameter in self.exchange_parameters(stage, task)
        ]
        return [*self.encoders.parameters(), *exchanges]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        last = self.exchange_parameters(self.stages - 1, index)
        return [*last, *self.conclude_parameters(index), *self.heads[index].parameters()]
