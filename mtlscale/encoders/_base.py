"""The contract of an encoder: a recipe that builds a module from a suite's inputs to feature vectors or maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
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

    @property
    def embedding_size(self) -> int | None:
        """Size of the vectors that `embed` gives; None where the encoder has no layer of embeddings."""
        return None

    def embed(self, inputs: Tensor) -> Tensor:
        """Inputs -> embedded [B, embedding_size], or of sequences [B, L, embedding_size]: what `read` reads."""
        raise NotImplementedError

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        """Embedded -> features; `read(embed(inputs), inputs)` is the whole."""
        raise NotImplementedError

    def head(self, task: Task, dropout: float, features: int | None = None) -> nn.Module:
        """A fresh head for features like this encoder's, of so many channels (default: its own)."""
        return linear_head(features or self.features, task.outputs, dropout)


class StagedModule(EncoderModule):
    """An encoder cut into stages, so that architectures can share, branch, stitch or attend after each of them.

    `prepare` turns inputs into what the first stage reads, `stage` makes the next features of the last, `finish` turns
    the last stage's into the encoder's; `forward` is all of them in order. Parameters are in the stages alone. `widths`
    are the units or channels after each stage.
    """

    stages: nn.ModuleList | Sequence[nn.Module]
    widths: tuple[int, ...]

    def prepare(self, inputs: Tensor) -> Tensor:
        """Inputs [B, *input_shape] -> what the first stage reads."""
        return inputs

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        """Stage `index` (from 0): features -> [B, widths[index], ...]. `memory`: what a pass through all stages keeps
        for later ones, at first an empty dictionary."""
        result: Tensor = self.stages[index](features)
        return result

    def finish(self, features: Tensor) -> Tensor:
        """The last stage's features -> the encoder's."""
        return features

    def keep(self, first: int, last: int) -> None:
        """Drop all stages but those from `first` to before `last`: only these may be passed from now on."""
        for index in range(len(self.stages)):
            if not first <= index < last:
                self.stages[index] = nn.Identity()  # type: ignore[index]

    def forward(self, inputs: Tensor) -> Tensor:
        features, memory = self.prepare(inputs), Memory()
        for index in range(len(self.stages)):
            features = self.stage(index, features, memory)
        return self.finish(features)


class MapStagedModule(StagedModule):
    """One whose stages give maps [B, widths[index], h, w]."""

    stages: nn.ModuleList

    def finish(self, features: Tensor) -> Tensor:
        """The last stage's map -> features: itself where `spatial`, else its mean over places."""
        return features if self.spatial else features.mean((2, 3))


class Encoder(Component):
    """A recipe of an encoder; `build` makes a fresh, initialised module."""

    kind: ClassVar[str] = "encoders"
    # True where modules of several trials may run as one batched module: plain tensor operations, dropout by `Dropout`,
    # nothing that remembers batches.
    batchable: ClassVar[bool] = False
    # Where a suite's tasks have a label for every token, what it gives is a row of features for each, [B L, features].
    per_token: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("vector",)  # the kinds of input it reads

    @property
    def stage_count(self) -> int:
        """Stages of its modules; 0 where they are not cut into any."""
        return 0

    def build(self, suite: TaskSuite) -> EncoderModule:
        """A module for this suite's inputs. Raises `UserError` where they do not fit."""
        raise NotImplementedError

    def without_files(self, folder: Path | None) -> Encoder:
        """The recipe of the same module with whatever weights, for whoever has its state: it reads no file of those it
        names. folder: with the configuration and the tokenizer of a pretrained model, where it has one."""
        files = {name for name, (_, spec) in self.knobs().items() if spec.file} | {"vectors"}
        return replace(self, **dict.fromkeys(files & set(self.knobs())))
