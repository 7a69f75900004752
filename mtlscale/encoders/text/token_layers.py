"""Fully connected layers on stored features of tokens."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.contract import Encoder, EncoderModule, StagedModule
from mtlscale.encoders.token_stages import check_per_token, relu_layers


class TokenLayers(Encoder):
    """Fully connected layers on token features that a frozen model computed once, when the data set was prepared.

    Every layer is linear, ReLU, dropout, and a stage, so that tasks can branch before and after each.
    """

    name: ClassVar[str] = "token_layers"
    source: ClassVar[str] = "the layers above multilingual BERT of Yue's thesis, chapter 5"
    inputs: ClassVar[tuple[str, ...]] = ("vector",)
    per_token: ClassVar[bool] = True

    hidden: tuple[int, ...] = knob((768,) * 5, low=1, help="sizes of the layers")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="after every layer")

    @property
    def stage_count(self) -> int:
        return len(self.hidden)

    def build(self, suite: TaskSuite) -> EncoderModule:
        check_per_token(self.name, suite)
        if suite.input_kind not in self.inputs or len(suite.input_shape) != 2:
            raise UserError(
                f"{self.name} reads features of tokens, {suite.name} has {suite.input_kind} inputs; choose another "
                "encoder, or prepare it with features"
            )
        if not self.hidden:
            raise UserError(f"{self.name}: hidden = [] has no layer; give it sizes")
        return TokenLayersModule(suite.input_shape[1], self.hidden, self.dropout)


class TokenLayersModule(StagedModule):
    """Network from token features [B, L, size] to [B L, last hidden size]."""

    vectorised = True

    def __init__(self, size: int, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        self.stages = nn.ModuleList(relu_layers((size, *hidden), dropout))
        self.widths, self.features = hidden, hidden[-1]

    def prepare(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(0, 1)
