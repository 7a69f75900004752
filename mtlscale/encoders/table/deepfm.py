"""Encoder of recommenders by a factorisation machine."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, knob
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.table._embeddings import ColumnEmbeddings, category_counts, initial_weights, layers_of
from mtlscale.encoders.table.mlp import ACTIVATIONS


class DeepFM(Encoder):
    """DeepFM: a factorisation machine and fully connected layers on the same vectors of categories and numbers.

    A category c has a vector v_c, a column of numbers x_j the vector x_j v_j. The features are the machine's linear
    term Σ w_c + Σ w_j x_j, its products of pairs Σ_{i<j} v_i ⊙ v_j, size by size, and the deep layers. A linear head
    whose weights of the first two are 1 is DeepFM's output (equations 1 to 4); here each task's head has weights of its
    own. Defaults are the paper's.
    """

    name: ClassVar[str] = "deepfm"
    source: ClassVar[str] = "Guo et al., IJCAI 2017"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)
    batchable: ClassVar[bool] = True

    dimensions: int = knob(10, low=1, search=(4, 8, 10, 16, 32), help="size of the vectors")
    hidden: tuple[int, ...] = knob((400, 400, 400), low=1, help="sizes of the deep layers")
    activation: str = knob("relu", choices=tuple(ACTIVATIONS), help="after every deep layer")
    dropout: float = knob(0.5, low=0.0, high=1.0, open_high=True, help="after every deep layer")

    def build(self, suite: TaskSuite) -> EncoderModule:
        counts = category_counts(self.name, suite)
        return DeepFMModule(counts, self.dimensions, self.hidden, self.activation, self.dropout)


class DeepFMModule(EncoderModule):
    """Network from a table's columns [B, columns] to [B, 1 + dimensions + last deep size]."""

    def __init__(
        self, counts: tuple[int, ...], dimensions: int, hidden: tuple[int, ...], activation: str, dropout: float
    ) -> None:
        super().__init__()
        self.dimensions, self.columns = dimensions, len(counts)
        self.vectors = ColumnEmbeddings(counts, [dimensions] * len(counts), with_numbers=False)
        self.first = ColumnEmbeddings(counts, [1] * len(counts), with_numbers=False)
        self.numbers = self.vectors.numbers
        self.number_vectors = nn.Parameter(initial_weights(dimensions, len(self.numbers), dimensions))
        self.number_weights = nn.Parameter(initial_weights(len(self.numbers), len(self.numbers)))

        self.spans = dict(self.vectors.spans)
        for position, column in enumerate(self.numbers):
            start = self.vectors.width + position * dimensions
            self.spans[column] = (start, start + dimensions)

        self.layers = layers_of((self.embedding_size, *hidden), activation, dropout)
        self.features = 1 + dimensions + (hidden[-1] if hidden else self.embedding_size)

    @property
    def embedding_size(self) -> int:
        return self.columns * self.dimensions

    def embed(self, inputs: Tensor) -> Tensor:
        """Return the vectors of all columns, one behind the other: categories, then numbers."""
        of_numbers = self.vectors.numbers_of(inputs).unsqueeze(-1) * self.number_vectors
        categories = [self.vectors(inputs)] if self.vectors.width else []
        return torch.cat([*categories, of_numbers.flatten(-2)], -1)

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        linear = (self.vectors.numbers_of(inputs) * self.number_weights).sum(-1, keepdim=True)
        if self.first.width:
            linear = linear + self.first(inputs).sum(-1, keepdim=True)
        return torch.cat([linear, pair_products(embedded, self.dimensions), self.layers(embedded)], -1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.read(self.embed(inputs), inputs)


def pair_products(embedded: Tensor, dimensions: int) -> Tensor:
    """Return Σ_{i<j} v_i ⊙ v_j [..., dimensions] of vectors [..., columns · dimensions] that follow each other."""
    vectors = embedded.unflatten(-1, (-1, dimensions))
    products: Tensor = 0.5 * (vectors.sum(-2).square() - vectors.square().sum(-2))
    return products
