"""The space of AASPC's heads: a row of cells, to which the classifier and a domain objective are attached.

A cell is a fully connected layer of its input's size or half of it, batch normalisation, ReLU, dropout, and a skip
connection that is added to its output. Its input is one of the two previous outputs. There are (2·3)^N 2^(N-1) N² heads
of N cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from mtlscale.encoders import BatchNorm2d, Dropout

SKIPS = ("input", "linear", "norm")  # the values that a cell's skip connection may take


@dataclass(frozen=True)
class Cell:
    """The structure of one cell.

    Attributes:
        back: 0 for the previous output, 1 for the one before it.
        half: Whether the cell halves its input's size.
        skip: Index into `SKIPS`.
    """

    back: int
    half: bool
    skip: int


@dataclass(frozen=True)
class Head:
    """The structure of a head.

    Attributes:
        cells: The cells, in order.
        watched: Index, from 0, of the cell that the objective looks at.
        classifier: Index, from 0, of the cell that the classifier reads.
    """

    cells: tuple[Cell, ...]
    watched: int
    classifier: int

    def sizes(self, features: int) -> list[tuple[int, int]]:
        """Return the sizes of each cell's input and output."""
        outputs = [features]
        cell_sizes = []
        for cell in self.cells:
            size = outputs[-1 - cell.back]
            outputs.append(max(1, size // 2) if cell.half else size)
            cell_sizes.append((size, outputs[-1]))
        return cell_sizes

    def needed(self) -> list[int]:
        """Return the cells that the objective and the classifier depend on, in order."""
        needed_cells, pending = set(), [self.watched, self.classifier]
        while pending:
            index = pending.pop()
            if index >= 0 and index not in needed_cells:
                needed_cells.add(index)
                pending.append(index - 1 - self.cells[index].back)
        return sorted(needed_cells)

    def describe(self) -> str:
        """Describe the head, as in "1: x0 full skip norm | 2: x1 half skip input; watched 1, classifier 2"."""
        descriptions = [
            f"{index + 1}: x{index - cell.back} {'half' if cell.half else 'full'} skip {SKIPS[cell.skip]}"
            for index, cell in enumerate(self.cells)
        ]
        return f"{' | '.join(descriptions)}; watched {self.watched + 1}, classifier {self.classifier + 1}"


def decisions(cells: int) -> list[int]:
    """Return the number of choices of each decision, in order.

    Every cell has the decisions input, size and skip connection; then follow the watched cell and the classifier's.
    """
    choice_counts = []
    for index in range(cells):
        choice_counts += [min(2, index + 1), 2, len(SKIPS)]
    return [*choice_counts, cells, cells]


def decoded(choices: Sequence[int]) -> Head:
    """Return the head that a list of choices describes."""
    cells = [
        Cell(back, bool(half), skip) for back, half, skip in zip(*(choices[i:-2:3] for i in range(3)), strict=True)
    ]
    return Head(tuple(cells), choices[-2], choices[-1])


def head_count(cells: int) -> int:
    """Return the number of heads: 6, 288 and 7,776 for 1, 2 and 3 cells."""
    total = 1
    for size in decisions(cells):
        total *= size
    return total


def numbered(number: int, cells: int) -> list[int]:
    """Return the choices of the head with a number, from 0."""
    choices = []
    for size in reversed(decisions(cells)):
        number, choice = divmod(number, size)
        choices.append(choice)
    return choices[::-1]


def number_of(choices: Sequence[int]) -> int:
    """Return the number, from 0, of the head with these choices."""
    total = 0
    for choice, size in zip(choices, decisions((len(choices) - 2) // 3), strict=True):
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
        shortcut = (self.project(inputs) if skip == 0 else linear) if skip < 2 else normalised
        result: Tensor = self.dropped(normalised.relu()) + shortcut
        return result


class HeadSupernet(nn.Module):
    """The supernet of heads: every cell between every two sizes it may have, and a classifier for every size.

    A forward pass uses one head of it.
    """

    def __init__(self, features: int, cells: int, classes: int, dropout: float, heads: Sequence[Head]) -> None:
        """Build the weights that `heads` use; a forward pass takes no other head."""
        super().__init__()
        self.features = features

        weights, classifiers = {}, {}
        self.watched: set[int] = set()  # sizes that the watched features may have
        for head in heads:
            sizes = head.sizes(features)
            self.watched.add(sizes[head.watched][1])
            for index in head.needed():
                inputs, outputs = sizes[index]
                weights[f"{index}_{inputs}_{outputs}"] = (inputs, outputs)
            outputs = sizes[head.classifier][1]
            classifiers[f"{head.classifier}_{outputs}"] = outputs

        self.cells = nn.ModuleDict({name: CellWeights(*weights[name], dropout) for name in sorted(weights)})
        self.classifiers = nn.ModuleDict({name: nn.Linear(classifiers[name], classes) for name in sorted(classifiers)})

    def forward(self, inputs: Tensor, head: Head) -> tuple[Tensor, Tensor]:
        """Return the watched features [B, q] and the classifier's input [B, …] for features [B, features]."""
        outputs: list[Tensor | None] = [inputs]

        sizes, needed = head.sizes(self.features), set(head.needed())
        for index, cell in enumerate(head.cells):
            value = None
            if index in needed:
                cell_input = outputs[-1 - cell.back]
                assert cell_input is not None
                value = self.cells[f"{index}_{sizes[index][0]}_{sizes[index][1]}"](cell_input, cell.skip)
            outputs.append(value)

        watched, classifier_input = outputs[head.watched + 1], outputs[head.classifier + 1]
        assert watched is not None and classifier_input is not None
        return watched, classifier_input

    def classify(self, read: Tensor, head: Head) -> Tensor:
        prediction: Tensor = self.classifiers[f"{head.classifier}_{read.shape[1]}"](read)
        return prediction

    def modules_of(self, head: Head) -> list[nn.Module]:
        """Return the modules of a head; a cell's projection only if its skip connection takes the input."""
        sizes = head.sizes(self.features)
        modules: list[nn.Module] = []
        for index in head.needed():
            cell = self.cells[f"{index}_{sizes[index][0]}_{sizes[index][1]}"]
            assert isinstance(cell, CellWeights)
            modules += [cell.linear, cell.norm, *([cell.project] if head.cells[index].skip == 0 else [])]
        return [*modules, self.classifiers[f"{head.classifier}_{sizes[head.classifier][1]}"]]


def all_heads(cells: int) -> list[Head]:
    """List every head of so many cells."""
    return [decoded(numbered(number, cells)) for number in range(head_count(cells))]
