"""Encoder of tables with categories."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, knob
from mtlscale.encoders.contract import Encoder, EncoderModule, StagedModule
from mtlscale.encoders.table._embeddings import DIMENSIONS_HELP, ColumnEmbeddings, column_embeddings, layer
from mtlscale.encoders.table.mlp import ACTIVATIONS


class EmbeddingMLP(Encoder):
    """Embedding and MLP: a vector for each category, the numbers beside them, and fully connected layers on both.

    Each column of categories has vectors of its own, one of them for values that training does not have. The first
    stage is the embedding; each layer is its own stage.
    """

    name: ClassVar[str] = "embedding_mlp"
    source: ClassVar[str] = "Cheng et al., DLRS 2016 (the deep part); size rule of Wang et al., ADKDD 2017"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)
    batchable: ClassVar[bool] = True

    dimensions: int = knob(0, low=0, search=(0, 4, 8, 16, 32), help=DIMENSIONS_HELP)
    hidden: tuple[int, ...] = knob((128, 64), low=1, help="sizes of the hidden layers")
    activation: str = knob("relu", choices=tuple(ACTIVATIONS), help="after every hidden layer")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="after every hidden layer")

    @property
    def stage_count(self) -> int:
        return 1 + len(self.hidden)

    def build(self, suite: TaskSuite) -> EncoderModule:
        embeddings = column_embeddings(self.name, suite, self.dimensions)
        return EmbeddingMLPModule(embeddings, self.hidden, self.activation, self.dropout)


class EmbeddingMLPModule(StagedModule):
    """Network from a table's columns [B, columns] to [B, last hidden size], or to the embedding without a layer."""

    def __init__(self, embeddings: ColumnEmbeddings, hidden: tuple[int, ...], activation: str, dropout: float) -> None:
        super().__init__()
        self.widths = (embeddings.width, *hidden)
        layers = (
            layer(before, after, activation, dropout)
            for before, after in zip(self.widths[:-1], self.widths[1:], strict=True)
        )
        self.stages = nn.ModuleList([embeddings, *layers])
        self.spans = embeddings.spans
        self.features = self.widths[-1]

    @property
    def embedding_size(self) -> int:
        return self.widths[0]

    def embed(self, inputs: Tensor) -> Tensor:
        embedded: Tensor = self.stages[0](inputs)
        return embedded

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        for stage in self.stages[1:]:
            embedded = stage(embedded)
        return embedded
