"""Encoder of texts as bags of words."""

from __future__ import annotations

import itertools
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, knob
from mtlscale.data.format.sequences import lengths
from mtlscale.encoders.contract import Encoder, EncoderModule, StagedModule
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.text._tokens import word_embedding
from mtlscale.encoders.text._word_vectors import VECTORS_HELP


class Averaged(Encoder):
    """The mean of a document's word vectors, and fully connected layers with ReLU on it.

    The mean is over the words, not over padding; an empty document has the zero vector. The first stage is the
    embedding with the mean; each layer is its own stage.
    """

    name: ClassVar[str] = "averaged"
    source: ClassVar[str] = "Iyyer et al., ACL 2015; the MLP of Wu, Zhang & Ré, ICLR 2020"
    inputs: ClassVar[tuple[str, ...]] = ("tokens",)

    dimensions: int = knob(300, low=1, help="size of a word vector")
    hidden: tuple[int, ...] = knob((128,), low=1, help="sizes of the layers on the mean")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="after every layer")
    vectors: str | None = knob(None, help=VECTORS_HELP)

    @property
    def stage_count(self) -> int:
        return 1 + len(self.hidden)

    def build(self, suite: TaskSuite) -> EncoderModule:
        embedding = word_embedding(self.name, suite, self.dimensions, self.vectors)
        return AveragedModule(embedding, self.hidden, self.dropout)


class MeanEmbedding(nn.Module):
    """Layer from token ids [B, L] to the mean of their vectors [B, D]."""

    def __init__(self, embedding: nn.Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.embedding(tokens)  # padding has the zero vector
        return vectors.sum(1) / lengths(tokens).clamp(min=1).to(vectors)[:, None]


class AveragedModule(StagedModule):
    """Network from token ids [B, L] to [B, last hidden size], or to the mean vector if there is no layer."""

    def __init__(self, embedding: nn.Embedding, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.widths = (embedding.embedding_dim, *hidden)
        layers = (
            nn.Sequential(nn.Linear(before, after), nn.ReLU(), Dropout(dropout))
            for before, after in itertools.pairwise(self.widths)
        )
        self.stages = nn.ModuleList([MeanEmbedding(embedding), *layers])
        self.features = self.widths[-1]

    @property
    def embedding_size(self) -> int:
        return self.widths[0]

    def embed(self, inputs: Tensor) -> Tensor:
        mean: Tensor = self.stages[0](inputs)
        return mean

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        for layer in self.stages[1:]:
            embedded = layer(embedded)
        return embedded
