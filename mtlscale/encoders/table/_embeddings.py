"""The common parts of encoders of categories: an embedding of every category column, with the numbers beside them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mtlscale.config import TaskSuite, UserError
from mtlscale.data.format.categories import UNKNOWN
from mtlscale.encoders.dropout import Dropout
from mtlscale.encoders.table.mlp import ACTIVATIONS, refuse_molecules

STANDARD_DEVIATION = 0.01  # of the components of a category's vector, as in the released code of AITM
DIMENSIONS_HELP = "size of the vectors; 0: 6·n^(1/4) for a column of n categories"


def rule_size(categories: int) -> int:
    """Return the size of the vectors of a column with that many categories: 6·n^(1/4) (Wang et al., ADKDD 2017)."""
    return max(1, round(6.0 * math.sqrt(math.sqrt(categories))))


def category_counts(name: str, suite: TaskSuite) -> tuple[int, ...]:
    """Return the number of codes of every input column, 0 for numbers.

    Raises:
        UserError: If the inputs are no table.
    """
    refuse_molecules(name, suite)
    if suite.input_kind != "vector" or len(suite.input_shape) != 1:
        raise UserError(
            f"{name} reads the columns of a table, {suite.name} has {suite.input_kind} inputs of shape "
            f"{tuple(suite.input_shape)}; choose another encoder"
        )
    return suite.categories or (0,) * suite.input_shape[0]


class ColumnEmbeddings(nn.Module):
    """Layer from a table's columns [B, columns] to the vectors of their categories [B, width], numbers behind them.

    Columns with vectors of one size share a table, in which each has rows of its own. The row of unseen values starts
    at zero, the mean of the others; where training has no unseen value it stays there.

    Attributes:
        width: Number of output columns.
        spans: First and last output column (exclusive) of each input column.
    """

    def __init__(self, counts: Sequence[int], sizes: Sequence[int], *, with_numbers: bool = True) -> None:
        """Build the tables.

        Args:
            counts: Number of codes of each input column, 0 for numbers.
            sizes: Size of the vectors of each column; what stands there for numbers is not read.
            with_numbers: Whether numbers are passed through.
        """
        super().__init__()
        self.numbers = [column for column, count in enumerate(counts) if not count]
        self.register_buffer("number_columns", torch.tensor(self.numbers, dtype=torch.int64), persistent=False)
        self.spans: dict[int, tuple[int, int]] = {}
        self.tables = nn.ModuleList()

        self.width = 0
        for size in sorted({sizes[column] for column, count in enumerate(counts) if count}):
            columns = [column for column, count in enumerate(counts) if count and sizes[column] == size]
            ends = list(itertools.accumulate(counts[column] for column in columns))
            offsets = [0, *ends[:-1]]
            index = len(self.tables)
            self.register_buffer(f"columns_{index}", torch.tensor(columns), persistent=False)
            self.register_buffer(f"offsets_{index}", torch.tensor(offsets), persistent=False)
            self.tables.append(_table(offsets, ends[-1], size))
            for column in columns:
                self.spans[column] = (self.width, self.width + size)
                self.width += size

        self.with_numbers = with_numbers
        for column in self.numbers if with_numbers else ():
            self.spans[column] = (self.width, self.width + 1)
            self.width += 1

    def forward(self, inputs: Tensor) -> Tensor:
        parts = []
        for index, table in enumerate(self.tables):
            codes = inputs[..., self.get_buffer(f"columns_{index}")].long()
            parts.append(table(codes + self.get_buffer(f"offsets_{index}")).flatten(-2))
        if self.with_numbers and self.numbers:
            parts.append(self.numbers_of(inputs))
        return torch.cat(parts, -1)

    def numbers_of(self, inputs: Tensor) -> Tensor:
        """Return the columns of numbers."""
        return inputs[..., self.get_buffer("number_columns")]


def _table(offsets: Sequence[int], rows: int, size: int) -> nn.Embedding:
    table = nn.Embedding(rows, size)
    with torch.no_grad():
        table.weight.mul_(STANDARD_DEVIATION)
        table.weight[[offset + UNKNOWN for offset in offsets]] = 0
    return table


def column_embeddings(name: str, suite: TaskSuite, dimensions: int) -> ColumnEmbeddings:
    """Build the embeddings of a suite's columns; `dimensions` 0 sizes each column's vectors by `rule_size`."""
    counts = category_counts(name, suite)
    return ColumnEmbeddings(counts, [dimensions or rule_size(max(1, count - 1)) for count in counts])


def layers_of(widths: Sequence[int], activation: str, dropout: float) -> nn.Sequential:
    """Build fully connected layers of these widths, the first of them that of the inputs."""
    return nn.Sequential(*(layer(before, after, activation, dropout) for before, after in itertools.pairwise(widths)))


def layer(before: int, after: int, activation: str, dropout: float) -> nn.Sequential:
    """Build a fully connected layer, its activation and dropout."""
    return nn.Sequential(nn.Linear(before, after), ACTIVATIONS[activation](), Dropout(dropout))


def initial_weights(inputs: int, *shape: int) -> Tensor:
    """Return initial weights of a layer with that many inputs, distributed as in `torch.nn.Linear`."""
    bound = 1.0 / math.sqrt(max(1, inputs))
    return torch.empty(shape).uniform_(-bound, bound)
