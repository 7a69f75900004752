"""TSN: one network for all tasks, in which the task's code scales and shifts the decoder's features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.architectures.contract import Architecture, MultiTaskModule
from mtlscale.config import TaskSuite, knob
from mtlscale.data import Batch, Outputs
from mtlscale.encoders import EncoderModule, MapHead


class TSNModule(MultiTaskModule):
    """The encoder and decoder of all tasks, with a code and a head for each.

    With `whole` the decoder is a whole head of the encoder, and a task's own head is one layer.
    """

    decoder: nn.Module

    def __init__(
        self, suite: TaskSuite, encoder: EncoderModule, code: int, top: int, whole: bool, dropout: float
    ) -> None:
        super().__init__()
        self.names = tuple(task.name for task in suite.tasks)
        self.encoder = encoder
        self.codes = nn.ParameterList(torch.randn(code) for _ in suite.tasks)
        self.embedding = nn.Sequential(nn.Linear(code, code), nn.ReLU(), nn.Linear(code, 2 * top))

        if whole:
            decoder = encoder.head(replace(suite.tasks[0], outputs=top, classes=()), dropout)
            self.decoder = decoder.layers if isinstance(decoder, MapHead) else decoder
            self.heads = nn.ModuleList(_last(decoder, top, task.outputs) for task in suite.tasks)
            return

        self.decoder = (
            nn.Conv2d(encoder.features, top, 3, padding=1) if encoder.spatial else nn.Linear(encoder.features, top)
        )
        self.heads = nn.ModuleList(encoder.head(task, dropout, top) for task in suite.tasks)

    def forward(self, batch: Batch) -> Outputs:
        decoded = normalised(self.decoder(self.encoder(batch.inputs)))
        predictions = {}
        for task in batch.tasks:
            index = self.names.index(task)
            predictions[task] = self.heads[index](self.conditioned(decoded, index))
        return Outputs(predictions)

    def conditioned(self, decoded: Tensor, task: int) -> Tensor:
        """Scale and shift normalised features [B, top, …] for a task, and apply a ReLU."""
        scale, shift = self.embedding(self.codes[task]).reshape(2, -1, *[1] * (decoded.ndim - 2))
        return functional.relu(decoded * (1.0 + scale) + shift)

    def shared_parameters(self) -> list[nn.Parameter]:
        return [*self.encoder.parameters(), *self.embedding.parameters(), *self.decoder.parameters()]

    def task_parameters(self, task: str) -> list[nn.Parameter]:
        index = self.names.index(task)
        return [self.codes[index], *self.heads[index].parameters()]


def _last(decoder: nn.Module, features: int, outputs: int) -> nn.Module:
    """Build the one layer to a task's prediction; maps are brought to the size of the image after it."""
    if isinstance(decoder, MapHead):
        return MapHead(nn.Conv2d(features, outputs, 1), decoder.size)
    return nn.Linear(features, outputs)


def normalised(features: Tensor) -> Tensor:
    """Normalise every sample: channels [B, F, h, w] over positions, a vector [B, F] over its features."""
    dims = (2, 3) if features.ndim == 4 else (1,)
    variance, mean = torch.var_mean(features, dims, correction=0, keepdim=True)
    return (features - mean) * (variance + 1e-5).rsqrt()


class TSN(Architecture):
    """Task switching network: one encoder and one decoder, whose normalised features a task's code scales and shifts.

    A learnt code per task goes through an embedding network of two layers. The decoder is one convolution (a linear
    layer on vectors, which are normalised over their features), while the source has one at every resolution. The last
    layers, whose sizes differ between tasks, stay the tasks' own. Encoder and decoder run once for all tasks. With
    `decoder: head` the decoder is a whole head of the encoder (DeepLab: its pyramid), and a task's own part is one
    layer: the number of parameters hardly grows with the tasks, as published.
    """

    name: ClassVar[str] = "tsn"
    source: ClassVar[str] = "Sun et al., ICCV 2021"
    batchable: ClassVar[bool] = True

    code: int = knob(32, low=1, help="size of a task's code")
    top: int = knob(64, low=1, search=(16, 32, 64, 128), help="channels of the decoder")
    decoder: str = knob("layer", choices=("layer", "head"), help="one layer, and a head per task; one head for all")

    def build(self, suite: TaskSuite, encoder: Callable[[], EncoderModule], dropout: float) -> MultiTaskModule:
        return TSNModule(suite, encoder(), self.code, self.top, self.decoder == "head", dropout)
