"""The layers of an evaluation network: one operation per edge, with normalisations that have scales and shifts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from mtlscale.encoders._batch_norm import BatchNorm2d
from mtlscale.encoders._cell_costs import Place
from mtlscale.encoders._cell_space import Cell


def relu_conv(inputs: int, outputs: int, affine: bool = True) -> nn.Sequential:
    """ReLU, a 1x1 convolution and a normalisation: [B, inputs, H, W] -> [B, outputs, H, W]."""
    return nn.Sequential(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), BatchNorm2d(outputs, affine=affine))


class Halve(nn.Module):
    """Half of the map: [B, inputs, H, W] -> [B, outputs, ⌈H/2⌉, ⌈W/2⌉]. Half of the outputs read the even places, the
    others those one further down and right."""

    def __init__(self, inputs: int, outputs: int, affine: bool = True) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs - outputs // 2, 1, stride=2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1, stride=2, bias=False) if outputs > 1 else None
        self.norm = BatchNorm2d(outputs, affine=affine)

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs.relu()
        found: Tensor = self.even(x)
        if self.odd is not None:
            found = torch.cat([found, self.odd(shifted(x))], 1)
        result: Tensor = self.norm(found)
        return result


def shifted(maps: Tensor) -> Tensor:
    """One place further down and right; with a row and a column of zeros where a side is odd, so that halves of it have
    the same size."""
    height, width = maps.shape[-2:]
    return functional.pad(maps, (0, width % 2, 0, height % 2))[..., 1:, 1:]


def _separable(width: int, kernel: int, stride: int, dilation: int = 1) -> list[nn.Module]:
    padding = dilation * (kernel // 2)
    depth = nn.Conv2d(width, width, kernel, stride, padding, dilation, groups=width, bias=False)
    return [nn.ReLU(), depth, nn.Conv2d(width, width, 1, bias=False), BatchNorm2d(width)]


def operation(name: str, width: int, stride: int) -> nn.Module:
    """[B, width, H, W] -> the same, or with stride 2 half of the map."""
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
    """One cell: two maps -> the maps of its four nodes side by side, [B, 4 · width, H', W'].

    drawn [8, B], of each edge: kept samples' 1 / (1 - rate), 0 for those dropped; identities are never dropped.
    """

    def __init__(self, cell: Cell, place: Place) -> None:
        super().__init__()
        self.cell = cell
        older = Halve if place.reduced else relu_conv
        self.before = nn.ModuleList([older(place.inputs[0], place.width), relu_conv(place.inputs[1], place.width)])
        self.edges = nn.ModuleList(
            operation(what, place.width, 2 if place.reduction and state < 2 else 1)
            for node in cell
            for what, state in node
        )

    def forward(self, older: Tensor, newer: Tensor, drawn: Tensor | None = None) -> Tensor:
        states = [self.before[0](older), self.before[1](newer)]
        for number, node in enumerate(self.cell):
            total: Tensor | None = None
            for side, (_, state) in enumerate(node):
                edge = 2 * number + side
                found = self.edges[edge](states[state])
                if drawn is not None and not isinstance(self.edges[edge], nn.Identity):
                    found = found * drawn[edge].to(found.dtype)[:, None, None, None]
                total = found if total is None else total + found
            assert total is not None
            states.append(total)
        return torch.cat(states[2:], 1)
