"""DCN-v2: layers that cross the embedded columns with each other, below or beside fully connected layers."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, knob
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.table._embeddings import DIMENSIONS_HELP, ColumnEmbeddings, column_embeddings, layers_of
from mtlscale.encoders.table.mlp import ACTIVATIONS


class DCNV2(Encoder):
    """DCN-v2: cross layers x_{l+1} = x_0 ⊙ (W_l x_l + b_l) + x_l, below (stacked) or beside (parallel) deep layers.

    x_0 [B, width] are the vectors of all categories, and the numbers (equation 1). With a `rank`, W_l is U_l V_lᵀ
    (equation 5); its mixture of several such products is left out.
    """

    name: ClassVar[str] = "dcn_v2"
    source: ClassVar[str] = "Wang et al., WWW 2021; size rule of Wang et al., ADKDD 2017"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)
    batchable: ClassVar[bool] = True

    dimensions: int = knob(0, low=0, search=(0, 4, 8, 16, 32), help=DIMENSIONS_HELP)
    layers: int = knob(2, low=1, high=8, search=(1, 2, 3, 4), help="cross layers")
    rank: int = knob(0, low=0, help="of the cross layers' matrices; 0: full")
    structure: str = knob("stacked", choices=("stacked", "parallel"), help="deep layers on, or beside, cross layers")
    hidden: tuple[int, ...] = knob((128, 64), low=1, help="sizes of the deep layers")
    activation: str = knob("relu", choices=tuple(ACTIVATIONS), help="after every deep layer")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="after every deep layer")

    def build(self, suite: TaskSuite) -> EncoderModule:
        return DCNV2Module(column_embeddings(self.name, suite, self.dimensions), self)


class DCNV2Module(EncoderModule):
    """Network from a table's columns [B, columns] to [B, features]."""

    def __init__(self, embeddings: ColumnEmbeddings, settings: DCNV2) -> None:
        super().__init__()
        self.embeddings, self.spans = embeddings, embeddings.spans
        width = embeddings.width
        self.crosses = nn.ModuleList(_cross(width, settings.rank) for _ in range(settings.layers))
        self.deep = layers_of((width, *settings.hidden), settings.activation, settings.dropout)
        self.stacked = settings.structure == "stacked"

        deep_width = settings.hidden[-1] if settings.hidden else width
        self.features = deep_width if self.stacked else width + deep_width

    @property
    def embedding_size(self) -> int:
        return self.embeddings.width

    def embed(self, inputs: Tensor) -> Tensor:
        embedded: Tensor = self.embeddings(inputs)
        return embedded

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        crossed = embedded
        for cross in self.crosses:
            crossed = embedded * cross(crossed) + crossed
        features: Tensor = self.deep(crossed) if self.stacked else torch.cat([crossed, self.deep(embedded)], -1)
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        return self.read(self.embed(inputs), inputs)


def _cross(width: int, rank: int) -> nn.Module:
    """Build W x + b [B, width] of inputs [B, width]."""
    if not rank or rank >= width:
        return nn.Linear(width, width)
    return nn.Sequential(nn.Linear(width, rank, bias=False), nn.Linear(rank, width))
