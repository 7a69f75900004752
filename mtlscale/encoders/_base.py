"""The contract of an encoder: a recipe that builds a module from a suite's inputs to feature vectors."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from mtlscale.components import Component
from mtlscale.tasks import TaskSuite


class EncoderModule(nn.Module):
    """Maps inputs [B, *input_shape] to features [B, features]."""

    features: int
    # True where several backward passes through this encoder may run as one batched pass (no custom functions, no
    # convolutions, for which batching costs more than it saves).
    vectorised: bool = False

    def forward(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError


class Encoder(Component):
    """A recipe of an encoder; `build` makes a fresh, initialised module."""

    kind: ClassVar[str] = "encoders"
    # True where modules of several trials may run as one batched module: plain tensor operations, dropout by `Dropout`,
    # nothing that remembers batches.
    stackable: ClassVar[bool] = False
    inputs: ClassVar[tuple[str, ...]] = ("vector",)  # the kinds of input it reads

    def build(self, suite: TaskSuite) -> EncoderModule:
        """A module for this suite's inputs. Raises `UserError` where they do not fit."""
        raise NotImplementedError
