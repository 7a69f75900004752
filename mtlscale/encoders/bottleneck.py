from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.encoders._base import Encoder, EncoderModule
from mtlscale.encoders._batch_norm import BatchNorm2d
from mtlscale.encoders._dropout import Dropout
from mtlscale.spec import TaskSuite, UserError, knob


class Bottleneck(Encoder):
    """A fully connected layer, batch normalisation, ReLU, dropout: the usual layer on a frozen backbone's features."""

    name: ClassVar[str] = "bottleneck"
    source: ClassVar[str] = "Long et al., ICML 2015; with batch normalisation as in AASPC (Yue's thesis), chapter 4"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)

    width: int = knob(256, low=1, search=(128, 256, 512), help="features that it gives")
    dropout: float = knob(0.5, low=0.0, high=1.0, open_high=True, help="of them")

    def build(self, suite: TaskSuite) -> EncoderModule:
        if suite.input_kind not in self.inputs:
            raise UserError(f"bottleneck reads vectors, {suite.name} has {suite.input_kind}; choose another encoder")
        return BottleneckModule(math.prod(suite.input_shape), self.width, self.dropout)


class BottleneckModule(EncoderModule):
    """[B, features] -> [B, width]; statistics are those of the whole step's batch, each stream's its own."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.norm = BatchNorm2d(width)
        self.dropped = Dropout(dropout)
        self.features = width

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.norm(self.linear(inputs.flatten(1))[:, :, None, None])[:, :, 0, 0]
        found: Tensor = self.dropped(values.relu())
        return found
