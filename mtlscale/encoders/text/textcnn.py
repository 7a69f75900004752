"""Convolutional encoder of texts (TextCNN)."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.text._textcnn_fast import is_faster, plain_text_features, text_features
from mtlscale.encoders.text._tokens import WordModule, word_embedding
from mtlscale.encoders.text._word_vectors import VECTORS_HELP


class TextCNN(Encoder):
    """Parallel 1-D convolutions over word embeddings, ReLU, maximum over time, concatenated.

    Source: Kim, EMNLP 2014; widths of AAMTRL (ICML 2020) and GetMTL. Padding (id 0) has the zero vector, which is not
    trained. Convolutions are 'valid' over the whole padded sequence, exactly as `nn.Conv1d` on the padded batch. A
    document may therefore be shorter than the widest filter, as long as the suite's length is not.
    """

    name: ClassVar[str] = "textcnn"
    source: ClassVar[str] = "Kim, EMNLP 2014; widths of Mao, Liu & Lin, ICML 2020"
    inputs: ClassVar[tuple[str, ...]] = ("tokens",)

    dimensions: int = knob(300, low=1, help="size of a word vector")
    filters: int = knob(100, low=1, help="filters of each width")
    widths: tuple[int, ...] = knob((3, 5, 7), low=1, help="filter widths in words")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="on the features")
    vectors: str | None = knob(None, help=VECTORS_HELP)

    def build(self, suite: TaskSuite) -> EncoderModule:
        if not self.widths:
            raise UserError("textcnn: widths = [] should hold at least one width")
        embedding = word_embedding(self.name, suite, self.dimensions, self.vectors)
        if max(self.widths) > suite.input_shape[0]:
            raise UserError(
                f"textcnn: width {max(self.widths)} exceeds the {suite.input_shape[0]} tokens of {suite.name}; "
                "choose smaller widths or prepare longer documents"
            )
        return TextCNNModule(embedding, self.filters, self.widths, self.dropout)


class TextCNNModule(WordModule):
    """Network from token ids [B, L] to [B, filters * number of widths]."""

    def __init__(self, embedding: nn.Embedding, filters: int, widths: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.convolutions = nn.ModuleList(nn.Conv1d(embedding.embedding_dim, filters, width) for width in widths)
        self.dropout = nn.Dropout(dropout)
        self.features = filters * len(widths)

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        words = embedded.transpose(1, 2)
        pooled = [convolution(words).amax(dim=2) for convolution in self.convolutions]
        features: Tensor = self.dropout(torch.cat(pooled, dim=1).relu())
        return features

    def forward(self, inputs: Tensor) -> Tensor:
        words = self.embedding.weight
        parameters = list(self.convolutions.parameters())
        weights, biases = parameters[::2], parameters[1::2]
        function = text_features if is_faster(inputs, words, weights) else plain_text_features
        features: Tensor = self.dropout(function(inputs, words, weights, biases, self.embedding.sparse))
        return features
