"""Multi-layer perceptron (MLP)."""

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError, knob
from mtlscale.data.format.categories import OneHot
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.encoders.contract import Encoder, EncoderModule, Memory, StagedModule
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.pixels import add_pixels, normalised

_LAYERS = 3  # layers of a stage: linear, activation, dropout
ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "gelu": nn.GELU,
    "elu": nn.ELU,
    "identity": nn.Identity,
}


class MLP(Encoder):
    """Fully connected layers over the flattened input.

    Every hidden layer is linear, activation, dropout, and a stage; `hidden = []` passes the flattened input through.
    Reads vectors, columns of category codes as one-hot columns, and images.
    """

    name: ClassVar[str] = "mlp"
    source: ClassVar[str] = "own: fully connected layers"
    inputs: ClassVar[tuple[str, ...]] = ("vector", "image")
    batchable: ClassVar[bool] = True

    hidden: tuple[int, ...] = knob((64,), low=1, help="sizes of the hidden layers")
    activation: str = knob("relu", choices=tuple(ACTIVATIONS), help="after every hidden layer; identity: linear layers")
    dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="after every hidden layer")
    input_dropout: float = knob(0.0, low=0.0, high=1.0, open_high=True, help="of the inputs")

    @property
    def stage_count(self) -> int:
        return len(self.hidden)

    def build(self, suite: TaskSuite) -> EncoderModule:
        if suite.input_kind not in self.inputs:
            raise UserError(f"mlp reads vectors or images, {suite.name} has {suite.input_kind}; choose another encoder")
        refuse_molecules(self.name, suite)
        return MLPModule(suite, self.hidden, ACTIVATIONS[self.activation], self.dropout, self.input_dropout)


def refuse_molecules(name: str, suite: TaskSuite) -> None:
    """Raise `UserError` for graphs whose edges are a list: as columns of a table they say nothing."""
    layout = GraphLayout.of(suite.extras)
    if layout is not None and layout.edges:
        raise UserError(f"{name} reads the columns of a table, {suite.name} has molecules; choose mpnn")


class MLPModule(StagedModule):
    """Network from [B, *input_shape] to [B, last hidden size]; bytes of images are normalised first."""

    vectorised = True
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        suite: TaskSuite,
        hidden: tuple[int, ...],
        activation: type[nn.Module],
        dropout: float,
        input_dropout: float,
    ) -> None:
        super().__init__()

        self.one_hot = OneHot(suite.categories) if suite.categories else None
        size = math.prod(suite.input_shape) if self.one_hot is None else self.one_hot.width
        if suite.input_kind == "image":
            add_pixels(self, suite)

        self.of_images = suite.input_kind == "image"
        self.dropped = Dropout(input_dropout)

        layers: list[nn.Module] = [nn.Flatten()]
        for before, after in itertools.pairwise((size, *hidden)):
            layers += [nn.Linear(before, after), activation(), Dropout(dropout)]
        self.layers = nn.Sequential(*layers)

        self.features = hidden[-1] if hidden else size
        self.size, self.widths = size, hidden

    @property
    def stages(self) -> Sequence[nn.Module]:  # type: ignore[override]
        return [self.layers[first : first + _LAYERS] for first in range(1, len(self.layers), _LAYERS)]

    def prepare(self, inputs: Tensor) -> Tensor:
        flat: Tensor = self.layers[0](self.dropped(self._numbers(inputs)))
        return flat

    def _numbers(self, inputs: Tensor) -> Tensor:
        if self.one_hot is not None:
            return self.one_hot(inputs)
        return normalised(inputs, self.mean, self.std) if self.of_images else inputs

    def stage(self, index: int, features: Tensor, memory: Memory) -> Tensor:
        for layer in range(1 + index * _LAYERS, 1 + (index + 1) * _LAYERS):
            features = self.layers[layer](features)
        return features

    @property
    def embedding_size(self) -> int:
        return self.size

    def embed(self, inputs: Tensor) -> Tensor:
        return self.prepare(inputs)

    def read(self, embedded: Tensor, inputs: Tensor) -> Tensor:
        features: Tensor = self.layers[1:](embedded)
        return features

    def keep(self, first: int, last: int) -> None:
        for layer in range(1, len(self.layers)):
            if not first <= (layer - 1) // _LAYERS < last:
                self.layers[layer] = nn.Identity()

    def forward(self, inputs: Tensor) -> Tensor:
        features: Tensor = self.layers(self.dropped(self._numbers(inputs)))
        return features
