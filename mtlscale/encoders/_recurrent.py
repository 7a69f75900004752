"""Recurrent encoders of text: what `lstm` and `bilstm` share."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mtlscale.encoders._base import Encoder, EncoderModule
from mtlscale.encoders._tokens import lengths, word_embedding
from mtlscale.encoders._vectors import VECTORS_HELP
from mtlscale.spec import TaskSuite, knob


class Recurrent(Encoder):
    """An LSTM over word vectors that stops at each document's last token, pooled over time."""

    inputs: ClassVar[tuple[str, ...]] = ("tokens",)
    bidirectional: ClassVar[bool] = False

    dimensions: int = knob(300, low=1, help="size of a word vector")
    hidden: int = knob(200, low=1, help="size of the state of each direction")
    layers: int = knob(1, low=1, help="stacked layers")
    pooling: str = knob("last", choices=("last", "max", "mean"), help="final states, or over the outputs in time")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="on the features")
    vectors: str | None = knob(None, help=VECTORS_HELP)

    def build(self, suite: TaskSuite) -> EncoderModule:
        embedding = word_embedding(self.name, suite, self.dimensions, self.vectors)
        lstm = nn.LSTM(self.dimensions, self.hidden, self.layers, batch_first=True, bidirectional=self.bidirectional)
        return RecurrentModule(embedding, lstm, self.pooling, self.dropout)


class RecurrentModule(EncoderModule):
    """Token ids [B, L] -> [B, hidden * directions].

    Padding after a document's last token is not read, in either direction; an empty document is one padding token.
    """

    def __init__(self, embedding: nn.Embedding, lstm: nn.LSTM, pooling: str, dropout: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.lstm = lstm
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.directions = 2 if lstm.bidirectional else 1
        self.features = lstm.hidden_size * self.directions

    def forward(self, inputs: Tensor) -> Tensor:
        read = lengths(inputs).clamp(min=1).cpu()
        packed = pack_padded_sequence(self.embedding(inputs), read, batch_first=True, enforce_sorted=False)
        outputs, (states, _) = self.lstm(packed)
        if self.pooling == "last":
            pooled = torch.cat(list(states[-self.directions :]), dim=1)
        elif self.pooling == "max":
            pooled = pad_packed_sequence(outputs, batch_first=True, padding_value=-torch.inf)[0].amax(dim=1)
        else:
            total = pad_packed_sequence(outputs, batch_first=True)[0].sum(dim=1)
            pooled = total / read.to(total)[:, None]
        features: Tensor = self.dropout(pooled)
        return features
