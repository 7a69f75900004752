"""The contract of an encoder: a recipe that builds a module from a suite's inputs to feature vectors or maps."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from mtlscale.encoders._heads import linear_head
from mtlscale.spec import Component, Task, TaskSuite

Memory = dict[str, Any]  # what later stages of a pass need of earlier ones


class EncoderModule(nn.Module):
    """Maps inputs [B, *input_shape] to features [B, features], or to maps [B, features, h, w] where `spatial`."""

    features: int
    spatial: bool = False
    # True where several backward passes through this encoder may run as one batched pass (no custom functions, no
    # convolutions, for which batching costs more than it saves).
    vectorised: bool = False

    def forward(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def head(self, task: Task, dropout: float, features: int | None = None) -> nn.Module:
        """A fresh head for features like this encoder's, of so many channels (default: its own)."""
        return linear_head(features or self.features, task.outputs, dropout)


class StagedModule(EncoderModule):
    """An encoder cut into stages, so that architectures can share, stitch or attend after each of them.

    `prepare` turns inputs into the first map, `stage` turns a map into the next, `finish` the last one into features;
    `forward` is all of them in order. `widths` are the channels after each stage.
    """

    stages: nn.ModuleList
    widths: tuple[int, ...]

    def prepare(self, inputs: Tensor) -> Tensor:
        """Inputs [B, *input_shape] -> [B, channels, H, W]."""
        return inputs

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        """Stage `index` (from 0): a map -> [B, widths[index], h, w]. `memory`: a fresh dictionary for each pass."""
        result: Tensor = self.stages[index](features)
        return result

    def finish(self, features: Tensor) -> Tensor:
        """The last stage's map -> features: itself where `spatial`, else its mean over places."""
        return features if self.spatial else features.mean((2, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        features, memory = self.prepare(inputs), Memory()
        for index in range(len(self.stages)):
            features = self.stage(index, features, memory)
        return self.finish(features)


class Encoder(Component):
    """A recipe of an encoder; `build` makes a fresh, initialised module."""

    kind: ClassVar[str] = "encoders"
    # True where modules of several trials may run as one batched module: plain tensor operations, dropout by `Dropout`,
    # nothing that remembers batches.
    batchable: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("vector",)  # the kinds of input it reads

    def build(self, suite: TaskSuite) -> EncoderModule:
        """A module for this suite's inputs. Raises `UserError` where they do not fit."""
        raise NotImplementedError
