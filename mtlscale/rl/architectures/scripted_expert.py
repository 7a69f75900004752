"""Scripted expert: the policy that an environment's authors wrote by hand, the mark that cloning aims at."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
import torch

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.architectures.fitted import FittedModule
from mtlscale.config import TaskSuite
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule
from mtlscale.rl.environments import OBSERVATIONS, Simulated, expert_of
from mtlscale.rl.sac.requirements import environments_of


class ScriptedExpertModule(FittedModule):
    """The scripted policies, which read observations as they were before normalisation."""

    def __init__(self, suite: TaskSuite, simulated: Simulated) -> None:
        super().__init__(suite)
        self._mean, self._std = np.array(simulated.mean), np.array(simulated.std)
        self._experts = {task.name: expert_of(task.name) for task in suite.tasks}

    def forward(self, batch: Batch) -> Outputs:
        rows = batch.inputs[:, :OBSERVATIONS].double().cpu().numpy() * self._std + self._mean
        predictions = {}
        for name in batch.tasks:
            expert = self._experts[name]
            actions = np.stack([expert(row) for row in rows]) if len(rows) else np.zeros((0, self.tasks[name].outputs))
            predictions[name] = self.with_graph(name, torch.from_numpy(actions).to(batch.inputs))
        return Outputs(predictions)


class ScriptedExpert(Architecture):
    """The experts of the package `metaworld`, whose demonstrations are cloned."""

    name: ClassVar[str] = "scripted_expert"
    source: ClassVar[str] = "baseline of Meta-World (Yu et al., CoRL 2019)"

    fitted: ClassVar[bool] = True

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return ScriptedExpertModule(suite, environments_of(suite, self.name))
