import math
from typing import ClassVar

from torch import Tensor, nn

from mtlscale.config import TaskSuite, knob
from mtlscale.encoders import Encoder, EncoderModule


class ResidualMLPModule(EncoderModule):
    """[B, *input_shape] -> [B, width]."""

    def __init__(self, size: int, width: int, depth: int) -> None:
        super().__init__()
        self.features = width
        self.first = nn.Linear(size, width)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.first(inputs.flatten(1))
        for block in self.blocks:
            features = features + block(features.relu())
        return features


class ResidualMLP(Encoder):
    """Fully connected layers, each added to what it reads."""

    name: ClassVar[str] = "residual_mlp"
    source: ClassVar[str] = "own example"
    inputs: ClassVar[tuple[str, ...]] = ("vector", "image")

    width: int = knob(64, low=1, help="of every layer")
    depth: int = knob(2, low=0, help="layers that are added")

    def build(self, suite: TaskSuite) -> EncoderModule:
        return ResidualMLPModule(math.prod(suite.input_shape), self.width, self.depth)
