"""Fully connected layers on the tokens' features of a pretrained language model."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.encoders.contract import Encoder, EncoderModule, StagedModule
from mtlscale.encoders.text.pretrained import PretrainedModule, checkpoint_model
from mtlscale.encoders.token_stages import check_per_token, relu_layers


class PretrainedLayers(Encoder):
    """Pretrained language model from a local folder with fully connected layers on its features of each token.

    The model is frozen, tuned as a whole, or tuned by adapters. The folder is that of `pretrained`. Every layer is
    linear, ReLU, dropout, and a stage. A frozen model lies below all branch points. A model that learns is the first
    stage: each encoder has its own copy, and branch points count from it on. A frozen model computes its features anew
    in every epoch; `token_layers` reads them from the prepared data set.
    """

    name: ClassVar[str] = "pretrained_layers"
    source: ClassVar[str] = "multilingual BERT under layers as in Yue's thesis, chapter 5; LoRA: Hu et al., ICLR 2022"
    inputs: ClassVar[tuple[str, ...]] = ("tokens",)
    per_token: ClassVar[bool] = True

    checkpoint: str | None = knob(None, file="checkpoint", help="folder with the model, its weights and its tokenizer")
    tune: str = knob("frozen", choices=("frozen", "full", "lora"), help="what of the model learns")
    rank: int = knob(8, low=1, help="of an adapter; lora")
    alpha: float = knob(16.0, low=0.0, open_low=True, help="an adapter counts alpha / rank; lora")
    hidden: tuple[int, ...] = knob((768,) * 5, low=1, help="sizes of the layers")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="after every layer")

    _weights: ClassVar[bool] = True  # whether the folder must hold weights

    def without_files(self, folder: Path | None) -> Encoder:
        return _Described(**{**{name: getattr(self, name) for name in self.knobs()}, "checkpoint": str(folder)})

    @property
    def stage_count(self) -> int:
        return len(self.hidden) + (self.tune != "frozen")

    def build(self, suite: TaskSuite) -> EncoderModule:
        check_per_token(self.name, suite)
        if not self.hidden:
            raise UserError(f"{self.name}: hidden = [] has no layer; give it sizes")
        settings = {"tune": self.tune, "rank": self.rank, "alpha": self.alpha, "weights": self._weights}
        model = checkpoint_model(self.name, self.checkpoint, suite, **settings)  # type: ignore[arg-type]
        tokenizer = suite.extras["tokenizer"]
        below = PretrainedModule(model, "tokens", tokenizer["padding"], tokenizer["separator"])
        return PretrainedLayersModule(below, self.tune == "frozen", self.hidden, self.dropout)


class _Described(PretrainedLayers):
    """Variant of the encoder for a folder without weights."""

    _weights: ClassVar[bool] = False


class PretrainedLayersModule(StagedModule):
    """Network from a checkpoint's token ids [B, L] to [B L, last hidden size]."""

    def __init__(self, below: PretrainedModule, frozen: bool, hidden: tuple[int, ...], dropout: float) -> None:
        super().__init__()
        layers = relu_layers((below.features, *hidden), dropout)
        self.frozen = below if frozen else None
        self.stages = nn.ModuleList(layers if frozen else [below, *layers])
        self.widths = hidden if frozen else (below.features, *hidden)
        self.features = hidden[-1]

    def prepare(self, inputs: Tensor) -> Tensor:
        return inputs if self.frozen is None else self.frozen(inputs)

    def keep(self, first: int, last: int) -> None:
        super().keep(first, last)
        if first:
            self.frozen = None  # the network that holds the first stage runs the frozen model
