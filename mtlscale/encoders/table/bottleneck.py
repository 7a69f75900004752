"""Encoder of one layer for prepared features."""

from __future__ import annotations

import math
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.batch_norm import BatchNorm2d
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.dropout import Dropout


class Bottleneck(Encoder):
    """Fully connected layer, batch normalisation, ReLU, dropout: the usual layer on a frozen backbone's features."""

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
    """Network from [B, features] to [B, width].

    Statistics are those of the whole step's batch, separately for each stream.
    """

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, width)
        self.norm = BatchNorm2d(width)
        self.dropped = Dropout(dropout)
        self.features = width

    def forward(self, inputs: Tensor) -> Tensor:
        values = self.norm(self.linear(inputs.flatten(1))[:, :, None, None])[:, :, 0, 0]
        features: Tensor = self.dropped(values.relu())
        return features
