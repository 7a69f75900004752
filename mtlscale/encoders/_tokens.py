"""What encoders of text share: the embedding and the lengths of padded documents."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mtlscale.encoders._base import EncoderModule
from mtlscale.encoders._vectors import PREPARED, read_prepared_vectors, read_vectors
from mtlscale.spec import TaskSuite, UserError

STANDARD_DEVIATION = 0.1  # of the components of a random word vector


class WordModule(EncoderModule):
    """An encoder whose first layer is an embedding of words."""

    embedding: nn.Embedding

    @property
    def embedding_size(self) -> int:
        return self.embedding.embedding_dim

    def embed(self, inputs: Tensor) -> Tensor:
        embedded: Tensor = self.embedding(inputs)
        return embedded


def word_embedding(name: str, suite: TaskSuite, dimensions: int, vectors: str | None) -> nn.Embedding:
    """A fresh embedding of the suite's words for the encoder of this name: random, from a file of word vectors, or,
    with `vectors="prepared"`, from those prepared with the suite.

    Padding (id 0) has the zero vector and no gradient. Words the file lacks get random vectors with the standard
    deviation of those it has (Kim 2014).
    """
    if suite.input_kind != "tokens" or suite.vocabulary_size is None:
        raise UserError(f"{name} reads tokens, {suite.name} has {suite.input_kind}; choose another encoder")
    embedding = nn.Embedding(suite.vocabulary_size, dimensions, padding_idx=0)
    known = None
    if vectors is not None:
        vocabulary = suite.extras.get("vocabulary")
        if vocabulary is None:
            raise UserError(f"{name}: vectors need the words of {suite.name}, which keeps none; prepare it again")
        if len(vocabulary) != suite.vocabulary_size:
            raise UserError(
                f"{name}: the vocabulary of {suite.name} has {len(vocabulary)} words, its manifest says "
                f"{suite.vocabulary_size}; prepare it again"
            )
        if vectors == PREPARED:
            known = read_prepared_vectors(suite, dimensions)
        else:
            known = read_vectors(vectors, vocabulary, dimensions)
    with torch.no_grad():
        embedding.weight.mul_(STANDARD_DEVIATION if known is None else known[1].std(correction=0))
        if known is not None:
            embedding.weight[known[0]] = known[1].to(embedding.weight)
        embedding.weight[0] = 0
    return embedding
