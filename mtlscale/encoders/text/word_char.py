"""Encoder of words by their vectors and their characters, read in both directions, trained from scratch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data.format.sequences import lengths
from mtlscale.encoders.contract import Encoder, EncoderModule, StagedModule
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.text._recurrent import both_ways
from mtlscale.encoders.text._tokens import word_embedding
from mtlscale.encoders.text._word_vectors import VECTORS_HELP
from mtlscale.encoders.token_stages import check_per_token, relu_layers

_SPECIAL = 2  # special character ids: padding, unknown
_DEVIATION = 0.1  # of the components of a random character vector


class WordChar(Encoder):
    """Bidirectional LSTM over word vectors with a vector of each word's characters, and fully connected layers.

    Characters are read by a convolution of width 3 and the maximum over positions (Ma & Hovy 2016), or by a
    bidirectional LSTM and its final states (Lample et al. 2016). The first stage is everything up to the words' LSTM;
    each layer on top is its own stage.
    """

    name: ClassVar[str] = "word_char"
    source: ClassVar[str] = "Ma & Hovy, ACL 2016; Lample et al., NAACL 2016"
    inputs: ClassVar[tuple[str, ...]] = ("tokens",)
    per_token: ClassVar[bool] = True

    dimensions: int = knob(100, low=1, help="size of a word vector")
    chars: str = knob("cnn", choices=("cnn", "bilstm"), help="what reads a word's characters")
    char_dimensions: int = knob(30, low=1, help="size of a character's vector")
    char_features: int = knob(50, low=2, help="size of what is read of a word's characters")
    state: int = knob(100, low=1, help="size of the state of each direction over words")
    hidden: tuple[int, ...] = knob((100,), low=1, help="sizes of the layers on top")
    dropout: float = knob(0.33, low=0.0, high=1.0, open_high=True, help="of words, and after every layer")
    vectors: str | None = knob(None, help=VECTORS_HELP)

    @property
    def stage_count(self) -> int:
        return 1 + len(self.hidden)

    def build(self, suite: TaskSuite) -> EncoderModule:
        check_per_token(self.name, suite)

        characters = suite.extras.get("characters")
        if suite.input_kind != "tokens" or len(suite.input_shape) != 2 or characters is None:
            raise UserError(
                f"{self.name} reads words and their characters, which {suite.name} has not; prepare it without a "
                "tokenizer, or choose pretrained_layers"
            )
        if self.char_features % 2 and self.chars == "bilstm":
            raise UserError(
                f"{self.name}: char_features = {self.char_features} should be even, half for each direction"
            )

        words = word_embedding(self.name, suite, self.dimensions, self.vectors)
        return WordCharModule(WordsRead(words, _SPECIAL + len(characters), self), self.hidden, self.dropout)


class WordsRead(nn.Module):
    """Layers from word and character ids [B, L, 1 + K] to features [B L, 2 state].

    Features are zeros at positions without a word.
    """

    def __init__(self, words: nn.Embedding, characters: int, settings: WordChar) -> None:
        super().__init__()
        self.words = words
        self.letters = nn.Embedding(characters, settings.char_dimensions, padding_idx=0)
        with torch.no_grad():
            self.letters.weight.mul_(_DEVIATION)

        size, letter_size = settings.char_features, settings.char_dimensions
        self.convolution = nn.Conv1d(letter_size, size, 3, padding=1) if settings.chars == "cnn" else None
        self.spelling = (
            None if settings.chars == "cnn" else nn.LSTM(letter_size, size // 2, batch_first=True, bidirectional=True)
        )

        self.lstm = nn.LSTM(settings.dimensions + size, settings.state, batch_first=True, bidirectional=True)
        self.dropped, self.size = Dropout(settings.dropout), size

    def forward(self, inputs: Tensor) -> Tensor:
        count, length = inputs.shape[:2]
        read = lengths(inputs).clamp(min=1)
        inside = torch.arange(length, device=inputs.device) < read[:, None]
        spelled = self._spelled(inputs[..., 1:][inside])
        letter_features = spelled.new_zeros(count, length, self.size).masked_scatter(inside.unsqueeze(2), spelled)
        words = self.dropped(torch.cat([self.words(inputs[..., 0]), letter_features], dim=2))
        outputs = self._packed(words, read) if read.is_cpu else both_ways(self.lstm, words, read) * inside.unsqueeze(2)
        return outputs.flatten(0, 1)

    def _packed(self, words: Tensor, read: Tensor) -> Tensor:
        packed = pack_padded_sequence(words, read, batch_first=True, enforce_sorted=False)
        outputs: Tensor = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=words.shape[1])[0]
        return outputs

    def _spelled(self, letters: Tensor) -> Tensor:
        """Return features [N, size] of N words' characters [N, K]; each distinct spelling is read once."""
        spellings, spelling_index = letters.unique(dim=0, return_inverse=True)
        vectors, is_character = self.letters(spellings), spellings != 0

        if self.convolution is not None:
            features = self.convolution(vectors.transpose(1, 2))
            features = torch.where(is_character.unsqueeze(1), features, -torch.inf).amax(2)
            return torch.where(is_character.any(1, keepdim=True), features, 0.0).relu()[spelling_index]

        assert self.spelling is not None
        read = lengths(spellings).clamp(min=1)
        if read.is_cpu:
            packed = pack_padded_sequence(vectors, read, batch_first=True, enforce_sorted=False)
            return torch.cat(list(self.spelling(packed)[1][0]), dim=1)[spelling_index]

        outputs, half = both_ways(self.spelling, vectors, read), self.size // 2
        ends = (read.long() - 1)[:, None, None].expand(-1, 1, half)
        return torch.cat([outputs[..., :half].gather(1, ends)[:, 0], outputs[:, 0, half:]], dim=1)[spelling_index]


class WordCharModule(StagedModule):
    """Network from word and character ids [B, L, 1 + K] to [B L, last hidden size]."""

    def __init__(self, below: WordsRead, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        size = 2 * below.lstm.hidden_size
        self.stages = nn.ModuleList([below, *relu_layers((size, *hidden), dropout)])
        self.widths, self.features = (size, *hidden), (size, *hidden)[-1]
