"""Numbers of parameters and multiply-adds of cells, counted without building them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mtlscale.nas.cells.space import EDGES, NODES, OPERATIONS, Cell, Genotype

Counts = Literal["exact", "author"]
STEM = 3  # width of the stem over that of the first cell
AUXILIARY = (128, 768)  # channels of the auxiliary head


@dataclass(frozen=True)
class CellShape:
    """The sizes of one cell in a network: its width, the channels of its inputs and the sides of its maps.

    `reduction` is True if the cell halves its maps, `reduced` if the cell before it did.
    """

    width: int
    inputs: tuple[int, int]
    before: tuple[int, int]  # height and width of the input map of its edges
    after: tuple[int, int]
    reduction: bool
    reduced: bool

    @property
    def area(self) -> int:
        return self.after[0] * self.after[1]


def places(cells: int, channels: int, size: tuple[int, int], stem: int = STEM, halved: bool = False) -> list[CellShape]:
    """Return the sizes of a network's cells, in order.

    Cells at a third and at two thirds of the network halve the map and double the width.

    Args:
        channels: Width of the first cell.
        size: Height and width of the newer map that the first cell reads.
        stem: Width of the stem over that of the first cell.
        halved: Whether the newer map is half the size of the older one.
    """
    width, inputs, sizes, reduced = channels, (stem * channels, stem * channels), list[CellShape](), halved
    for number in range(cells):
        reduction = number in (cells // 3, 2 * cells // 3)
        width *= 2 if reduction else 1
        after = (-(-size[0] // 2), -(-size[1] // 2)) if reduction else size
        sizes.append(CellShape(width, inputs, size, after, reduction, reduced))
        inputs, size, reduced = (inputs[1], NODES * width), after, reduction

    return sizes


def _kernel(operation: str) -> int:
    return int(operation[-1])


def operation_parameters(operation: str, width: int, stride: int) -> int:
    """Return an operation's parameters, with the normalisations' scales and shifts, as in an evaluation network."""
    if operation.startswith(("sep", "dil")):
        per_convolution = width * width + (_kernel(operation) ** 2 + 2) * width
        return 2 * per_convolution if operation.startswith("sep") else per_convolution
    return width * width + 2 * width if operation == "skip" and stride == 2 else 0


def operation_flops(operation: str, width: int, stride: int, area: int) -> int:
    """Return the multiply-adds of an operation's convolutions for an output map of `area` positions."""
    if operation.startswith(("sep", "dil")):
        per_convolution = (width * width + _kernel(operation) ** 2 * width) * area
        return 2 * per_convolution if operation.startswith("sep") else per_convolution
    return width * width * area if operation == "skip" and stride == 2 else 0


def _author_flops(operation: str, width: int, area: int) -> int:
    if operation.startswith(("sep", "dil")):
        per_convolution = (3 + width + _kernel(operation) ** 2) * width * area
        return 2 * per_convolution if operation.startswith("sep") else per_convolution
    return width * area if operation == "avg3" else 0


def search_costs(cells: int, channels: int, size: tuple[int, int], counts: Counts = "exact") -> dict[str, Tensor]:
    """Return `parameters` and `flops`, each [2, 14, 8] float64, of the operations of a search network.

    An entry is the cost of an operation on an edge of the normal (0) or the reduction cell (1), summed over all cells.

    Args:
        channels: Width of the first cell.
        size: Height and width of the stem's map.
        counts: "exact", or "author": as the E2RNAS code counts, which keeps the first map's size after reductions, adds
            the costs of normalisation and ReLU, and counts no parameters for identities.
    """
    costs = {name: torch.zeros(2, len(EDGES), len(OPERATIONS), dtype=torch.float64) for name in ("parameters", "flops")}

    for cell in places(cells, channels, size):
        for edge, (state, _) in enumerate(EDGES):
            stride = 2 if cell.reduction and state < 2 else 1
            for number, operation in enumerate(OPERATIONS):
                entry = (int(cell.reduction), edge, number)
                if counts == "author":
                    costs["parameters"][entry] += operation_parameters(operation, cell.width, 1)
                    costs["flops"][entry] += _author_flops(operation, cell.width, size[0] * size[1])
                else:
                    costs["parameters"][entry] += operation_parameters(operation, cell.width, stride)
                    costs["flops"][entry] += operation_flops(operation, cell.width, stride, cell.area)

    return costs


def expected(costs: Tensor, weights: Tensor) -> Tensor:
    """Return the sum of costs times weights, both [2, 14, 8]; with one-hot weights, the cost of that choice."""
    return (costs.to(weights) * weights).sum()


def reachable(costs: Tensor) -> tuple[float, float]:
    """Return the least and the largest cost that weights on the simplex of every edge can have."""
    return float(costs.amin(-1).sum()), float(costs.amax(-1).sum())


def _of_cell(cell: Cell, shape: CellShape) -> tuple[int, int]:
    parameters = flops = 0
    for channels in shape.inputs:  # a 1x1 convolution and a normalisation, or a halving one
        parameters += channels * shape.width + 2 * shape.width
        flops += channels * shape.width * shape.before[0] * shape.before[1]
    for node in cell:
        for operation, state in node:
            stride = 2 if shape.reduction and state < 2 else 1
            parameters += operation_parameters(operation, shape.width, stride)
            flops += operation_flops(operation, shape.width, stride, shape.area)
    return parameters, flops


def _costs(
    genotype: Genotype | str | Mapping[str, Any],
    cells: int,
    channels: int,
    classes: int,
    size: tuple[int, int],
    auxiliary: bool,
    inputs: int,
) -> tuple[int, int]:
    structure, stem = Genotype.of(genotype), STEM * channels
    parameters, flops = 9 * inputs * stem + 2 * stem, 9 * inputs * stem * size[0] * size[1]

    sizes = places(cells, channels, size)
    for cell in sizes:
        cell_costs = _of_cell(structure.reduce if cell.reduction else structure.normal, cell)
        parameters, flops = parameters + cell_costs[0], flops + cell_costs[1]

    features = NODES * sizes[-1].width
    if auxiliary:
        narrow, wide = AUXILIARY
        auxiliary_inputs = NODES * sizes[2 * cells // 3].width
        parameters += auxiliary_inputs * narrow + 2 * narrow + 4 * narrow * wide + 2 * wide + (wide + 1) * classes

    return parameters + (features + 1) * classes, flops + features * classes


def darts_parameters(
    genotype: Genotype | str | Mapping[str, Any],
    cells: int = 20,
    channels: int = 36,
    classes: int = 10,
    auxiliary: bool = False,
    inputs: int = 3,
) -> int:
    """Return the number of parameters of a genotype's evaluation network with the stem of small images.

    That stem is a 3x3 convolution of three times the channels.

    Args:
        genotype: A name (S1, S2, DARTS_V2), a genotype's text, or the genotype itself.
        channels: Width of the first cell.
        classes: Outputs of the linear layer.
        auxiliary: Whether to count the auxiliary head.
        inputs: Channels of the images.
    """
    return _costs(genotype, cells, channels, classes, (32, 32), auxiliary, inputs)[0]


def darts_flops(
    genotype: Genotype | str | Mapping[str, Any],
    cells: int = 20,
    channels: int = 36,
    classes: int = 10,
    size: tuple[int, int] = (32, 32),
    inputs: int = 3,
) -> int:
    """Return the multiply-adds of a genotype's evaluation network for one image, without its auxiliary head.

    Counts the convolutions and the linear layer.

    Args:
        genotype: A name (S1, S2, DARTS_V2), a genotype's text, or the genotype itself.
        channels: Width of the first cell.
        classes: Outputs of the linear layer.
        size: Height and width of the image.
        inputs: Channels of the image.
    """
    return _costs(genotype, cells, channels, classes, size, False, inputs)[1]
