"""Small transformer over word vectors, trained from scratch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data.format.sequences import lengths
from mtlscale.encoders.contract import Encoder, EncoderModule, Memory, StagedModule
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.text._tokens import word_embedding
from mtlscale.encoders.text._word_vectors import VECTORS_HELP


class Transformer(Encoder):
    """Transformer over word vectors with learned positions, normalisation before each part, and the mean over words.

    The first stage is the embedding; each block is its own stage. Words do not attend to padding. Features are the mean
    over the words of a document, normalised; an empty document is one padding token.
    """

    name: ClassVar[str] = "transformer"
    source: ClassVar[str] = "Vaswani et al., NeurIPS 2017; normalisation first: Xiong et al., ICML 2020"
    inputs: ClassVar[tuple[str, ...]] = ("tokens",)

    dimensions: int = knob(128, low=1, help="size of a word vector, and of each block's output")
    layers: int = knob(2, low=1, help="blocks")
    heads: int = knob(4, low=1, help="heads of attention, a divisor of dimensions")
    inner: int = knob(256, low=1, help="size of the hidden layer within a block")
    dropout: float = knob(0.1, low=0.0, high=1.0, open_high=True, help="of the embedding, and after each part")
    vectors: str | None = knob(None, help=VECTORS_HELP)

    @property
    def stage_count(self) -> int:
        return 1 + self.layers

    def build(self, suite: TaskSuite) -> EncoderModule:
        if self.dimensions % self.heads:
            raise UserError(f"{self.name}: dimensions = {self.dimensions} is no multiple of heads = {self.heads}")
        embedding = word_embedding(self.name, suite, self.dimensions, self.vectors)
        return TransformerModule(embedding, suite.input_shape[0], self)


class Positions(nn.Module):
    """Embedding layer from token ids [B, L] to the sum of word and position vectors [B, L, D]."""

    def __init__(self, embedding: nn.Embedding, length: int, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.places = nn.Parameter(torch.randn(length, embedding.embedding_dim) * 0.02)
        self.dropped = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        vectors: Tensor = self.dropped(self.embedding(tokens) + self.places[: tokens.shape[1]])
        return vectors


class Block(nn.Module):
    """Attention, then a hidden layer, each on normalised values and added to them: [B, L, D] -> [B, L, D]."""

    def __init__(self, size: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_layer = nn.LayerNorm(size), nn.LayerNorm(size)
        self.asked, self.joined = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.layer = nn.Sequential(nn.Linear(size, inner), nn.GELU(), nn.Linear(inner, size))
        self.dropped = Dropout(dropout)

    def forward(self, values: Tensor, words: Tensor) -> Tensor:
        """Return the block's output [B, L, D].

        Args:
            values: Input [B, L, D].
            words: Mask [B, L] of the positions that hold words.
        """
        count, length, width = values.shape
        parts = (
            self.asked(self.before_attention(values)).reshape(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        queries, keys, contents = parts.unbind()
        mixed = functional.scaled_dot_product_attention(queries, keys, contents, attn_mask=words[:, None, None, :])
        values = values + self.dropped(self.joined(mixed.transpose(1, 2).reshape(count, length, width)))
        result: Tensor = values + self.dropped(self.layer(self.before_layer(values)))
        return result


class TransformerModule(StagedModule):
    """Network from token ids [B, L] to [B, dimensions]."""

    def __init__(self, embedding: nn.Embedding, length: int, settings: Transformer) -> None:
        super().__init__()
        size = settings.dimensions
        blocks = (Block(size, settings.heads, settings.inner, settings.dropout) for _ in range(settings.layers))
        self.stages = nn.ModuleList([Positions(embedding, length, settings.dropout), *blocks])
        self.widths, self.features = (size,) * (1 + settings.layers), size

    @property
    def embedding_size(self) -> int:
        return self.features

    def embed(self, inputs: Tensor) -> Tensor:
        embedded: Tensor = self.stages[0](inputs)
        return embedded

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        memory = Memory(words=_word_mask(inputs))
        for index in range(1, len(self.stages)):
            embedded = self.stage(index, embedded, memory)
        return self.finish(embedded)

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        if index == 0:
            memory["words"] = _word_mask(features)
            return self.embed(features)

        output: Tensor = self.stages[index](features, memory["words"])
        if index < len(self.stages) - 1:
            return output

        words = memory["words"].unsqueeze(2)
        total = torch.where(words, output, 0.0).sum(1)
        return functional.layer_norm(total / words.sum(1), (self.features,))


def _word_mask(tokens: Tensor) -> Tensor:
    """Return the mask [B, L] of the positions that hold words; an empty document counts as one word."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    return positions < lengths(tokens).clamp(min=1)[:, None]
