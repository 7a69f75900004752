"""The common parts of the recurrent text encoders `lstm` and `bilstm`."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mtlscale.config import TaskSuite, knob
from mtlscale.data.format.sequences import lengths
from mtlscale.encoders.contract import Encoder, EncoderModule
from mtlscale.encoders.text._tokens import WordModule, word_embedding
from mtlscale.encoders.text._word_vectors import VECTORS_HELP


class Recurrent(Encoder):
    """Base class of an LSTM over word vectors that stops at each document's last token, pooled over time."""

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


class RecurrentModule(WordModule):
    """Network from token ids [B, L] to features [B, hidden * directions].

    It does not read padding after a document's last token, in either direction; an empty document is one padding token.
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
        return self.read(self.embed(inputs), inputs)

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        read = lengths(inputs).clamp(min=1)
        features: Tensor = self.dropout(self._packed(embedded, read) if read.is_cpu else self._padded(embedded, read))
        return features

    def _packed(self, embedded: Tensor, read: Tensor) -> Tensor:
        """Return features [B, features] of embedded [B, L, D] and token counts [B]; padding costs nothing."""
        packed = pack_padded_sequence(embedded, read, batch_first=True, enforce_sorted=False)
        outputs, (states, _) = self.lstm(packed)
        if self.pooling == "last":
            return torch.cat(list(states[-self.directions :]), dim=1)
        if self.pooling == "max":
            return pad_packed_sequence(outputs, batch_first=True, padding_value=-torch.inf)[0].amax(dim=1)
        total = pad_packed_sequence(outputs, batch_first=True)[0].sum(dim=1)
        return total / read.to(total)[:, None]

    def _padded(self, embedded: Tensor, read: Tensor) -> Tensor:
        """Return what `_packed` does by running over all of L: on a device, packing would wait for the lengths."""
        positions = torch.arange(embedded.shape[1], device=embedded.device)
        inside = (positions < read[:, None]).unsqueeze(2)
        outputs = self.lstm(embedded)[0] if self.directions == 1 else both_ways(self.lstm, embedded, read)

        if self.pooling == "last":
            ends = (read.long() - 1)[:, None, None].expand(-1, 1, self.lstm.hidden_size)
            forward, *backward = outputs.split(self.lstm.hidden_size, dim=2)
            return torch.cat([forward.gather(1, ends).squeeze(1), *(part[:, 0] for part in backward)], dim=1)
        if self.pooling == "max":
            return torch.where(inside, outputs, -torch.inf).amax(dim=1)
        return torch.where(inside, outputs, 0.0).sum(dim=1) / read.to(outputs)[:, None]


def both_ways(lstm: nn.LSTM, embedded: Tensor, read: Tensor) -> Tensor:
    """Return a bidirectional LSTM's outputs [B, L, 2 * hidden]; the backward pass starts at the last token.

    Args:
        embedded: Embedded tokens [B, L, D].
        read: How many tokens of each document to read, [B].
    """
    positions = torch.arange(embedded.shape[1], device=embedded.device)
    mirrored = torch.where(positions < read[:, None], read[:, None] - 1 - positions, positions).unsqueeze(2)

    zeros = embedded.new_zeros(1, len(embedded), lstm.hidden_size)
    for layer in range(lstm.num_layers):
        outputs = []
        for backward, parameters in enumerate(lstm.all_weights[2 * layer : 2 * layer + 2]):
            weights: list[Tensor] = [*parameters]
            ordered = embedded.gather(1, mirrored.expand_as(embedded)) if backward else embedded
            output: Tensor = torch.lstm(ordered, (zeros, zeros), weights, True, 1, 0.0, lstm.training, False, True)[0]
            outputs.append(output.gather(1, mirrored.expand_as(output)) if backward else output)
        embedded = torch.cat(outputs, dim=2)

    return embedded
