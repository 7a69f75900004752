"""The layers of an evaluation network: one operation per edge, with normalisations that have scales and shifts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.encoders.batch_norm import BatchNorm2d
from mtlscale.nas.cells.costs import CellShape
from mtlscale.nas.cells.space import Cell


def relu_conv(inputs: int, outputs: int, affine: bool = True) -> nn.Sequential:
    """Build ReLU, a 1x1 convolution and a normalisation: [B, inputs, H, W] -> [B, outputs, H, W]."""
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), BatchNorm2d(outputs, affine=affine))


class Halve(nn.Module):
    """Layer that halves a map: [B, inputs, H, W] -> [B, outputs, ⌈H/2⌉, ⌈W/2⌉].

    Half of the outputs read the even positions, the others the positions one further down and right.
    """

    def __init__(self, inputs: int, outputs: int, affine: bool = True) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs - outputs // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False) if outputs > 1 else None
        self.norm = BatchNorm2d(outputs, affine=affine)

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs.relu()
        halved: Tensor = self.even(x)
        if self.odd is not None:
            halved = torch.cat([halved, self.odd(shifted(x))], 1)
        result: Tensor = self.norm(halved)
        return result


def shifted(maps: Tensor) -> Tensor:
    """Return maps shifted by one position, so that they start one further down and right.

    A side of odd length gets a row or column of zeros, so that both halves of a map have the same size.
    """
    height, width = maps.shape[-2:]
    return functional.pad(maps, (0, width % 2, 0, height % 2))[..., 1:, 1:]


def _separable(width: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    padding = dilation * (kernel // 2)
    depth = nn.Conv2d(width, width, kernel, stride, padding, dilation, groups=width, bias=False)
    return [nn.ReLU(), depth, nn.Conv2d(width, width, 1, bias=False), BatchNorm2d(width)]


def operation(name: str, width: int, stride: int) -> nn.Module:
    """Build an operation: [B, width, H, W] -> the same shape, or half of the map with stride 2."""
    kernel = int(name[-1]) if name[-1].isdigit() else 0
    if name == "skip":
        return nn.Identity() if stride == 1 else Halve(width, width)
    if name == "max3":
        return nn.MaxPool2d(3, stride, 1)
    if name == "avg3":
        return nn.AvgPool2d(3, stride, 1, count_include_pad=False)
    if name.startswith("sep"):
        return nn.Sequential(*_separable(width, kernel, stride), *_separable(width, kernel, 1))
    return nn.Sequential(*_separable(width, kernel, stride, dilation=2))


class CellModule(nn.Module):
    """Cell from two maps to the maps of its four nodes side by side, [B, 4 · width, H', W'].

    `drawn` [8, B] of `forward` are the factors of drop-path for each edge: 1 / (1 - rate) for kept samples, 0 for
    dropped ones. Identities are never dropped.
    """

    def __init__(self, cell: Cell, shape: CellShape) -> None:
        super().__init__()
        self.cell = cell
        older = Halve if shape.reduced else relu_conv
        self.before = nn.ModuleList([older(shape.inputs[0], shape.width), relu_conv(shape.inputs[1], shape.width)])
        self.edges = nn.ModuleList(
            operation(name, shape.width, 2 if shape.reduction and state < 2 else 1)
            for node in cell
            for name, state in node
        )

    def forward(self, older: Tensor, newer: Tensor, drawn: Tensor | None = None) -> Tensor:
        states = [self.before[0](older), self.before[1](newer)]
        for number, node in enumerate(self.cell):
            total: Tensor | None = None
            for side, (_, state) in enumerate(node):
                edge = 2 * number + side
                output = self.edges[edge](states[state])
                if drawn is not None and not isinstance(self.edges[edge], nn.Identity):
                    output = output * drawn[edge].to(output.dtype)[:, None, None, None]
                total = output if total is None else total + output
            assert total is not None
            states.append(total)
        return torch.cat(states[2:], 1)
