"""Parameters and multiply-adds of cells, counted without building them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from mtlscale.encoders._cell_space import EDGES, NODES, OPERATIONS, Cell, Genotype

Counts = Literal["exact", "author"]
STEM = 3  # times the channels of the first cell
AUXILIARY = (128, 768)  # channels of the auxiliary head


@dataclass(frozen=True)
class Place:
    """A cell of a network: its width, the channels of its two inputs and the side of its input and output maps, and
    whether it halves them, and whether the cell before it did."""

    width: int
    inputs: tuple[int, int]
    before: tuple[int, int]  # height and width of the input map of its edges
    after: tuple[int, int]
    reduction: bool
    reduced: bool

    @property
    def area(self) -> int:
        return self.after[0] * self.after[1]


def places(cells: int, channels: int, size: tuple[int, int], stem: int = STEM, halved: bool = False) -> list[Place]:
    """The cells of a network in order; those at a third and at two thirds halve the map and double the width. size:
    of the newer map that the first cell reads; halved: whether it is half the older one."""
    width, inputs, found, reduced = channels, (stem * channels, stem * channels), list[Place](), halved
    for number in range(cells):
        reduction = number in (cells // 3, 2 * cells // 3)
        width *= 2 if reduction else 1
        after = (-(-size[0] // 2), -(-size[1] // 2)) if reduction else size
        found.append(Place(width, inputs, size, after, reduction, reduced))
        inputs, size, reduced = (inputs[1], NODES * width), after, reduction
    return found


def _kernel(operation: str) -> int:
    return int(operation[-1])


def operation_parameters(operation: str, width: int, stride: int) -> int:
    """With the normalisations' scales and shifts, as in an evaluation network."""
    if operation.startswith(("sep", "dil")):
        one = width * width + (_kernel(operation) ** 2 + 2) * width
        return 2 * one if operation.startswith("sep") else one
    return width * width + 2 * width if operation == "skip" and stride == 2 else 0


def operation_flops(operation: str, width: int, stride: int, area: int) -> int:
    """Multiply-adds of its convolutions at an output map of so many places."""
    if operation.startswith(("sep", "dil")):
        one = (width * width + _kernel(operation) ** 2 * width) * area
        return 2 * one if operation.startswith("sep") else one
    return width * width * area if operation == "skip" and stride == 2 else 0


def _author_flops(operation: str, width: int, area: int) -> int:
    if operation.startswith(("sep", "dil")):
        one = (3 + width + _kernel(operation) ** 2) * width * area
        return 2 * one if operation.startswith("sep") else one
    return width * area if operation == "avg3" else 0


def search_costs(cells: int, channels: int, size: tuple[int, int], counts: Counts = "exact") -> dict[str, Tensor]:
    """`parameters` and `flops`, each [2, 14, 8] float64: what an operation on an edge of the normal and of the
    reduction cell costs in all cells of a search network together.

    author: as the E2RNAS code counts, which keeps the first map's size after reductions, adds what normalisation and
    ReLU cost, and takes no parameters for identities.
    """
    found = {name: torch.zeros(2, len(EDGES), len(OPERATIONS), dtype=torch.float64) for name in ("parameters", "flops")}
    for place in places(cells, channels, size):
        for edge, (state, _) in enumerate(EDGES):
            stride = 2 if place.reduction and state < 2 else 1
            for number, operation in enumerate(OPERATIONS):
                at = (int(place.reduction), edge, number)
                if counts == "author":
                    found["parameters"][at] += operation_parameters(operation, place.width, 1)
                    found["flops"][at] += _author_flops(operation, place.width, size[0] * size[1])
                else:
                    found["parameters"][at] += operation_parameters(operation, place.width, stride)
                    found["flops"][at] += operation_flops(operation, place.width, stride, place.area)
    return found


def expected(costs: Tensor, weights: Tensor) -> Tensor:
    """Costs, weights [2, 14, 8] -> their product's sum: with one-hot weights the cost of that choice."""
    return (costs.to(weights) * weights).sum()


def reachable(costs: Tensor) -> tuple[float, float]:
    """The least and the most that weights on the simplex of every edge can have."""
    return float(costs.amin(-1).sum()), float(costs.amax(-1).sum())


def _of_cell(cell: Cell, place: Place) -> tuple[int, int]:
    parameters = flops = 0
    for channels in place.inputs:  # a 1x1 convolution and a normalisation, or one that halves the map
        parameters += channels * place.width + 2 * place.width
        flops += channels * place.width * place.before[0] * place.before[1]
    for node in cell:
        for operation, state in node:
            stride = 2 if place.reduction and state < 2 else 1
            parameters += operation_parameters(operation, place.width, stride)
            flops += operation_flops(operation, place.width, stride, place.area)
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
    found, stem = Genotype.of(genotype), STEM * channels
    parameters, flops = 9 * inputs * stem + 2 * stem, 9 * inputs * stem * size[0] * size[1]
    rows = places(cells, channels, size)
    for place in rows:
        more = _of_cell(found.reduce if place.reduction else found.normal, place)
        parameters, flops = parameters + more[0], flops + more[1]
    features = NODES * rows[-1].width
    if auxiliary:
        one, two = AUXILIARY
        there = NODES * rows[2 * cells // 3].width
        parameters += there * one + 2 * one + 4 * one * two + 2 * two + (two + 1) * classes
    return parameters + (features + 1) * classes, flops + features * classes


def darts_parameters(
    genotype: Genotype | str | Mapping[str, Any],
    cells: int = 20,
    channels: int = 36,
    classes: int = 10,
    auxiliary: bool = False,
    inputs: int = 3,
) -> int:
    """Parameters of the evaluation network of a genotype: a name (S1, S2, DARTS_V2), its text, or the genotype itself;
    with the stem of small images (3x3, three times the channels)."""
    return _costs(genotype, cells, channels, classes, (32, 32), auxiliary, inputs)[0]


def darts_flops(
    genotype: Genotype | str | Mapping[str, Any],
    cells: int = 20,
    channels: int = 36,
    classes: int = 10,
    size: tuple[int, int] = (32, 32),
    inputs: int = 3,
) -> int:
    """Multiply-adds of its convolutions and its linear layer for one image of this height and width, as the evaluation
    network without its auxiliary head has them."""
    return _costs(genotype, cells, channels, classes, size, False, inputs)[1]
