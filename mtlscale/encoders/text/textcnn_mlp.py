"""TextCNN with fully connected layers on top: a text encoder with stages to branch between."""

from __future__ import annotations

import itertools
from typing import ClassVar

from torch import nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.contract import EncoderModule, StagedModule
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.text.textcnn import TextCNN, TextCNNModule


class TextCNNMLP(TextCNN):
    """TextCNN and fully connected layers with ReLU over its features.

    The first stage is the whole TextCNN with its embedding; each layer is its own stage.
    """

    name: ClassVar[str] = "textcnn_mlp"
    source: ClassVar[str] = "Kim, EMNLP 2014, with fully connected layers"

    hidden: tuple[int, ...] = knob((64, 64), low=1, help="sizes of the layers on top")

    @property
    def stage_count(self) -> int:
        return 1 + len(self.hidden)

    def build(self, suite: TaskSuite) -> EncoderModule:
        below = super().build(suite)
        assert isinstance(below, TextCNNModule)
        if not self.hidden:
            raise UserError("textcnn_mlp: hidden = [] has no layer on top; give it sizes, or choose textcnn")
        return TextCNNMLPModule(below, self.hidden, self.dropout)


class TextCNNMLPModule(StagedModule):
    """Network from token ids [B, L] to [B, last hidden size]."""

    def __init__(self, below: TextCNNModule, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        layers = (
            nn.Sequential(nn.Linear(before, after), nn.ReLU(), Dropout(dropout))
            for before, after in itertools.pairwise((below.features, *hidden))
        )
        self.stages = nn.ModuleList([below, *layers])
        self.widths, self.features = (below.features, *hidden), hidden[-1]
