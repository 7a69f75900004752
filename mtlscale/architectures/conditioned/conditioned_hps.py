"""The network of COSMOS, conditioned on a preference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from mtlscale.architectures.conditioned._preferred import PreferredArchitecture, PreferredModule
from mtlscale.architectures.contract import MultiTaskModule
from mtlscale.config import TaskSuite, UserError
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule


class ConditionedModule(PreferredModule):
    """A hard parameter sharing network whose encoder reads the preference beside each sample."""

    def forward(self, batch: Batch) -> Outputs:
        representation: Tensor = self.encoder(self._with_preference(batch.inputs))
        branches = {task: representation.view_as(representation) for task in batch.tasks}
        return Outputs({task: self.head(task)(branches[task]) for task in batch.tasks}, representation, branches)

    def _with_preference(self, inputs: Tensor) -> Tensor:
        """Return inputs [B, d] with T more columns, or [B, C, H, W] with T more planes, each of one number."""
        preference = self.preference.to(inputs.dtype)
        if inputs.ndim == 2:
            return torch.cat([inputs, preference.expand(len(inputs), -1)], dim=1)
        return torch.cat([inputs, preference[:, None, None].expand(len(inputs), -1, *inputs.shape[2:])], dim=1)


class ConditionedHPS(PreferredArchitecture):
    """Hard parameter sharing with the preference as a further input: one network for a whole front.

    Source: COSMOS (Ruchte & Grabocka, ICDM 2021). Each step draws a preference for all its samples. Vectors get a
    column for each task, images a plane. Its loss is the balancer `cosmos`.
    """

    name: ClassVar[str] = "conditioned_hps"
    source: ClassVar[str] = "COSMOS: Ruchte & Grabocka, ICDM 2021"
    balancer: ClassVar[str] = "cosmos"

    def encoder_suite(self, suite: TaskSuite) -> TaskSuite:
        tasks, shape = len(suite.tasks), suite.input_shape
        if suite.input_kind == "tokens" or (suite.input_kind == "vector" and len(shape) > 1):
            raise UserError(f"{self.name} adds preferences to vectors and images, {suite.name} has texts; use palora")
        categories = (*suite.categories, *(0,) * tasks) if suite.categories else ()
        return replace(suite, input_shape=(shape[0] + tasks, *shape[1:]), categories=categories)

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return ConditionedModule(suite, encoder(), dropout, self.preferences(suite), self.concentration)
