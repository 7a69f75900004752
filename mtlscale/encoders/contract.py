"""The contract of an encoder: a recipe that builds a module from a suite's inputs to feature vectors or maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from mtlscale.config import Component, Task, TaskSuite
from mtlscale.encoders.heads import linear_head

Memory = dict[str, Any]  # data that a pass hands from earlier to later stages


class EncoderModule(nn.Module):
    """Network from inputs [B, *input_shape] to features [B, features], or maps [B, features, h, w] if `spatial`."""

    features: int
    spatial: bool = False
    # True if several backward passes through this encoder may run as one batched pass (no custom functions, no
    # convolutions, for which batching costs more than it saves).
    vectorised: bool = False

    def forward(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    @property
    def embedding_size(self) -> int | None:
        """Size of the vectors that `embed` returns; None if the encoder has no embedding layer."""
        return None

    def embed(self, inputs: Tensor) -> Tensor:
        """Return the inputs of `read`: embedded [B, embedding_size], or [B, L, embedding_size] for sequences."""
        raise NotImplementedError

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        """Return the features of embedded inputs; `read(embed(inputs), inputs)` is the whole encoder."""
        raise NotImplementedError

    def head(self, task: Task, dropout: float, features: int | None = None) -> nn.Module:
        """Build a task head for features like this encoder's.

        Args:
            features: Number of input channels; None: the encoder's own.
        """
        return linear_head(features or self.features, task.outputs, dropout)


class StagedModule(EncoderModule):
    """Encoder cut into stages, so that architectures can share, branch, stitch or attend after each of them.

    `prepare` turns inputs into the input of the first stage, `stage` computes the next features from the last, and
    `finish` turns the last stage's features into the encoder's; `forward` runs all of them in order. Only the stages
    have parameters. `widths` are the units or channels after each stage.
    """

    stages: nn.ModuleList | Sequence[nn.Module]
    widths: tuple[int, ...]

    def prepare(self, inputs: Tensor) -> Tensor:
        """Return the input of the first stage, from inputs [B, *input_shape]."""
        return inputs

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        """Return the features [B, widths[index], ...] after a stage.

        Args:
            index: Number of the stage, from 0.
            features: Features before the stage.
            memory: Data that a pass through all stages keeps for later ones; at first an empty dictionary.
        """
        result: Tensor = self.stages[index](features)
        return result

    def finish(self, features: Tensor) -> Tensor:
        """Return the encoder's features, from those of the last stage."""
        return features

    def keep(self, first: int, last: int) -> None:
        """Drop all stages but `first` to `last` - 1; only these may be run from now on."""
        for index in range(len(self.stages)):
            if not first <= index < last:
                self.stages[index] = nn.Identity()  # type: ignore[index]

    def forward(self, inputs: Tensor) -> Tensor:
        features, memory = self.prepare(inputs), Memory()
        for index in range(len(self.stages)):
            features = self.stage(index, features, memory)
        return self.finish(features)


class MapStagedModule(StagedModule):
    """Staged encoder whose stages return maps [B, widths[index], h, w]."""

    stages: nn.ModuleList

    def finish(self, features: Tensor) -> Tensor:
        """Return the last stage's map if `spatial`, else its mean over positions."""
        return features if self.spatial else features.mean((2, 3))


class Encoder(Component):
    """Recipe of an encoder; `build` makes a fresh, initialised module."""

    kind: ClassVar[str] = "encoders"
    # True if modules of several trials may run as one batched module: they consist of plain tensor operations, drop out
    # by `Dropout` and remember nothing of earlier batches.
    batchable: ClassVar[bool] = False
    # True if it returns one row of features per token, [B L, features], for suites with a label for every token.
    per_token: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("vector",)  # kinds of input that it reads

    @property
    def stage_count(self) -> int:
        """Number of stages of its modules; 0 if they are not cut into stages."""
        return 0

    def build(self, suite: TaskSuite) -> EncoderModule:
        """Build a fresh module for a suite's inputs.

        Raises:
            UserError: If the encoder does not fit these inputs.
        """
        raise NotImplementedError

    def without_files(self, folder: Path | None) -> Encoder:
        """Return a recipe of the same module that reads none of the files that this one names.

        Its weights are arbitrary, so it serves callers that load a state afterwards.

        Args:
            folder: Folder with the configuration and the tokenizer of a pretrained model, if the encoder has one.
        """
        files = {name for name, (_, spec) in self.knobs().items() if spec.file} | {"vectors"}
        return replace(self, **dict.fromkeys(files & set(self.knobs())))
