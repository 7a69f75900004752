"""AASPC's space of heads: cells in a row, and to which of them the classifier and a domain objective are attached.

A cell is a fully connected layer of its input's size or half of it, batch normalisation, ReLU, dropout, and a skip
connection that is added to its output. Its input is one of the two outputs before it. (2·3)^N 2^(N-1) N² heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from mtlscale.encoders import BatchNorm2d, Dropout

SKIPS = ("input", "linear", "norm")  # what a cell's skip connection takes


@dataclass(frozen=True)
class Cell:
    """back: 0 for the output just before, 1 for the one before that; half: whether it halves its input's size; skip: a
    place in `SKIPS`."""

    back: int
    half: bool
    skip: int


@dataclass(frozen=True)
class Head:
    """The cells, and the numbers, from 0, of those that the objective looks at and the classifier reads."""

    cells: tuple[Cell, ...]
    watched: int
    classifier: int

    def sizes(self, features: int) -> list[tuple[int, int]]:
        """The sizes of each cell's input and output."""
        outputs = [features]
        found = []
        for cell in self.cells:
            size = outputs[-1 - cell.back]
            outputs.append(max(1, size // 2) if cell.half else size)
            found.append((size, outputs[-1]))
        return found

    def needed(self) -> list[int]:
        """The cells that the two places hang on, in order."""
        wanted, todo = set(), [self.watched, self.classifier]
        while todo:
            place = todo.pop()
            if place >= 0 and place not in wanted:
                wanted.add(place)
                todo.append(place - 1 - self.cells[place].back)
        return sorted(wanted)

    def words(self) -> str:
        """Such as "1: x0 full skip norm | 2: x1 half skip input; watched 1, classifier 2"."""
        told = [
            f"{place + 1}: x{place - cell.back} {'half' if cell.half else 'full'} skip {SKIPS[cell.skip]}"
            for place, cell in enumerate(self.cells)
        ]
        return f"{' | '.join(told)}; watched {self.watched + 1}, classifier {self.classifier + 1}"


def decisions(cells: int) -> list[int]:
    """How many choices each decision has, in their order: of every cell input, size and skip; then the two places."""
    found = []
    for place in range(cells):
        found += [min(2, place + 1), 2, len(SKIPS)]
    return [*found, cells, cells]


def decoded(chosen: Sequence[int]) -> Head:
    """The head of a list of choices."""
    cells = [Cell(back, bool(half), skip) for back, half, skip in zip(*(chosen[i:-2:3] for i in range(3)), strict=True)]
    return Head(tuple(cells), chosen[-2], chosen[-1])


def count(cells: int) -> int:
    """How many heads there are: 6, 288 and 7,776 of 1, 2 and 3 cells."""
    total = 1
    for size in decisions(cells):
        total *= size
    return total


def numbered(number: int, cells: int) -> list[int]:
    """The choices of a head by its number, from 0."""
    chosen = []
    for size in reversed(decisions(cells)):
        number, choice = divmod(number, size)
        chosen.append(choice)
    return chosen[::-1]


def number_of(chosen: Sequence[int]) -> int:
    """The number of a head, from 0."""
    total = 0
    for choice, size in zip(chosen, decisions((len(chosen) - 2) // 3), strict=True):
        total = total * size + choice
    return total


class CellWeights(nn.Module):
    """The weights of one cell between two sizes: [B, inputs] -> [B, outputs]."""

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.linear, self.norm, self.dropped = nn.Linear(inputs, outputs), BatchNorm2d(outputs), Dropout(dropout)
        self.project = nn.Linear(inputs, outputs, bias=False) if inputs != outputs else nn.Identity()

    def forward(self, inputs: Tensor, skip: int) -> Tensor:
        linear = self.linear(inputs)
        normalised = self.norm(linear[:, :, None, None])[:, :, 0, 0]
        beside = (self.project(inputs) if skip == 0 else linear) if skip < 2 else normalised
        result: Tensor = self.dropped(normalised.relu()) + beside
        return result


class Supernet(nn.Module):
    """Every cell between every two sizes it may have, and a classifier for every size; one head of it at a time."""

    def __init__(self, features: int, cells: int, classes: int, dropout: float, heads: Sequence[Head]) -> None:
        """heads: those that will ever be asked for."""
        super().__init__()
        self.features = features
        weights, classifiers = {}, {}
        self.watched: set[int] = set()  # sizes of what is watched
        for head in heads:
            sizes = head.sizes(features)
            self.watched.add(sizes[head.watched][1])
            for place in head.needed():
                inputs, outputs = sizes[place]
                weights[f"{place}_{inputs}_{outputs}"] = (inputs, outputs)
            outputs = sizes[head.classifier][1]
            classifiers[f"{head.classifier}_{outputs}"] = outputs
        self.cells = nn.ModuleDict({name: CellWeights(*weights[name], dropout) for name in sorted(weights)})
        self.classifiers = nn.ModuleDict({name: nn.Linear(classifiers[name], classes) for name in sorted(classifiers)})

    def forward(self, inputs: Tensor, head: Head) -> tuple[Tensor, Tensor]:
        """[B, features] -> what is watched [B, q], and what the classifier reads [B, …]."""
        outputs: list[Tensor | None] = [inputs]
        sizes, needed = head.sizes(self.features), set(head.needed())
        for place, cell in enumerate(head.cells):
            value = None
            if place in needed:
                before = outputs[-1 - cell.back]
                assert before is not None
                value = self.cells[f"{place}_{sizes[place][0]}_{sizes[place][1]}"](before, cell.skip)
            outputs.append(value)
        watched, read = outputs[head.watched + 1], outputs[head.classifier + 1]
        assert watched is not None and read is not None
        return watched, read

    def classify(self, read: Tensor, head: Head) -> Tensor:
        found: Tensor = self.classifiers[f"{head.classifier}_{read.shape[1]}"](read)
        return found

    def modules_of(self, head: Head) -> list[nn.Module]:
        """What a head consists of; a cell's projection where its skip connection takes the input."""
        sizes = head.sizes(self.features)
        found: list[nn.Module] = []
        for place in head.needed():
            cell = self.cells[f"{place}_{sizes[place][0]}_{sizes[place][1]}"]
            assert isinstance(cell, CellWeights)
            found += [cell.linear, cell.norm, *([cell.project] if head.cells[place].skip == 0 else [])]
        return [*found, self.classifiers[f"{head.classifier}_{sizes[head.classifier][1]}"]]


def all_heads(cells: int) -> list[Head]:
    return [decoded(numbered(number, cells)) for number in range(count(cells))]
