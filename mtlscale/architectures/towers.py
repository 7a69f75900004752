"""Building blocks with a hidden layer per task, topic or expert: towers, and banks of parallel layers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mtlscale.architectures.contract import of_vectors
from mtlscale.config import Task, UserError
from mtlscale.encoders import Dropout, EncoderModule, conv_block


def tower(encoder: EncoderModule, task: Task, dropout: float, width: int) -> nn.Module:
    """Build a hidden layer of this width, dropout and an output layer: features [B, F] -> prediction [B, outputs]."""
    features = of_vectors(encoder, "a top with a hidden layer").features
    return nn.Sequential(nn.Linear(features, width), nn.ReLU(), Dropout(dropout), nn.Linear(width, task.outputs))


class Bank(nn.Module):
    """Parallel hidden layers: [B, inputs] for all, or [layers, B, inputs] -> activations [layers, B, outputs]."""

    def __init__(self, layers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(uniform(inputs, layers, inputs, outputs))
        self.bias = nn.Parameter(uniform(inputs, layers, outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        return parallel(inputs, self.weight, self.bias).relu()


class ConvBank(nn.Module):
    """Parallel convolutions: [B, inputs, h, w] for all, or [layers, B, …] -> [layers, B, outputs, h, w].

    A layer is a 3x3 convolution, batch normalisation and ReLU.
    """

    def __init__(self, layers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(conv_block(inputs, outputs) for _ in range(layers))

    def forward(self, inputs: Tensor) -> Tensor:
        layer_inputs = inputs.expand(len(self.layers), *inputs.shape[-4:])
        return torch.stack([layer(layer_input) for layer, layer_input in zip(self.layers, layer_inputs, strict=True)])


def bank(encoder: EncoderModule, layers: int, inputs: int, outputs: int) -> nn.Module:
    """Build parallel layers for features like the encoder's: linear on vectors, convolutions on maps."""
    return (ConvBank if encoder.spatial else Bank)(layers, inputs, outputs)


def parallel(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply parallel linear layers: inputs [B, I] or [G, B, I], weight [G, I, O], bias [G, O] -> [G, B, O]."""
    return torch.baddbmm(bias.unsqueeze(1), inputs.expand(len(weight), -1, -1), weight)


def uniform(inputs: int, *shape: int) -> Tensor:
    """Return initial weights or biases of a layer with that many inputs, distributed as in `torch.nn.Linear`."""
    bound = 1.0 / math.sqrt(inputs)
    return torch.empty(shape).uniform_(-bound, bound)


def common_outputs(name: str, tasks: Sequence[Task]) -> int:
    """Return the size of the prediction that all tasks share; raise `UserError` if they differ."""
    sizes = {task.outputs: task.name for task in reversed(tasks)}
    if len(sizes) > 1:
        (size_2, name_2), (size_1, name_1) = list(sizes.items())[-2:]
        raise UserError(
            f"{name} needs tasks with predictions of one size, but {name_1} has {size_1} and {name_2} {size_2}; "
            "choose an architecture with a head per task"
        )
    return next(iter(sizes))
