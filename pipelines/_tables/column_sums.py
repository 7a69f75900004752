"""Sums of a column's training rows that can be added up part by part, and the conversion that follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.format.table_columns import (
    EMPTY,
    TableColumn,
    by_kind,
    distinct_names,
    has_times,
    largest_molecule,
    numbers_of,
)

_SKETCH = 2048  # smallest hashes that are kept: more different values are estimated within about two per cent
_HASHES = 2.0**64


@dataclass(frozen=True)
class ColumnSums:
    """The sums of some training rows of a column.

    Attributes:
        kind: `number`, `date`, `category` or `smiles`.
        rows: Number of rows.
        present: Number of those with a value.
        mean: Mean of each part of a number or date over them.
        squares: Sum of the squared deviations from it.
        least: The smallest number; a whole one is exact.
        most: The largest.
        times: Whether some date has a time of the day.
        names: Different categories; too many are cut off.
        hashes: The smallest hashes of different categories, at most `_SKETCH`, those outside training included.
        different: Number of different categories, those outside training included; None: of several parts.
        atoms: The most atoms of a molecule, those outside training included.
        bonds: The most bonds of one.
    """

    kind: str
    rows: int
    present: int
    mean: np.ndarray
    squares: np.ndarray
    least: float = np.inf
    most: float = -np.inf
    times: bool = False
    names: frozenset[str] = frozenset()
    hashes: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint64))
    different: int | None = None
    atoms: int = 0
    bonds: int = 0

    def merged(self, other: ColumnSums) -> ColumnSums:
        """Return the sums of these rows and others, by Chan, Golub and LeVeque's formula."""
        present = self.present + other.present
        step = other.mean - self.mean
        share = other.present / present if present else 0.0
        return ColumnSums(
            self.kind,
            self.rows + other.rows,
            present,
            self.mean + step * share,
            self.squares + other.squares + step**2 * self.present * share,
            min(self.least, other.least),
            max(self.most, other.most),
            self.times or other.times,
            self.names | other.names,
            np.union1d(self.hashes, other.hashes)[:_SKETCH],
            None,
            max(self.atoms, other.atoms),
            max(self.bonds, other.bonds),
        )

    @property
    def constant(self) -> bool:
        """Whether no two rows differ."""
        if self.kind in ("category", "smiles"):
            return len(self.names) < 2
        return self.present == 0 or (self.present == self.rows and self.least == self.most)

    def loses_differences(self, precision: Literal["float32", "float64"]) -> bool:
        """Return whether rows differ, but not as numbers of a precision."""
        complete = self.kind == "number" and 0 < self.present == self.rows
        least, most = np.array([self.least, self.most]).astype(precision)
        return bool(complete and self.least < self.most and least == most)

    @property
    def distinct(self) -> int:
        """The number of different categories, estimated if there are many."""
        if self.different is not None or len(self.hashes) < _SKETCH:
            return self.different or len(self.hashes)
        return round((_SKETCH - 1) * _HASHES / float(self.hashes[-1]))

    def fitted(self, name: str, most_categories: int, buckets: int) -> TableColumn:
        """Return the conversion of the column.

        Args:
            most_categories: Number of categories up to which each has a code of its own.
            buckets: Number of codes if there are more.
        """
        if self.kind == "smiles":
            return TableColumn(name=name, kind="smiles", atoms=self.atoms, bonds=self.bonds)
        if self.kind == "category":
            if len(self.names) > most_categories:
                return TableColumn(name=name, kind="hash", buckets=buckets)
            return TableColumn(name=name, kind="category", categories=tuple(sorted(self.names, key=by_kind)))
        parts = self._parts
        return TableColumn(
            name=name,
            kind="date" if self.kind == "date" else "number",
            fill=tuple(map(float, self.mean[:parts])),
            indicator=0 < self.present < self.rows,
            times=self.times,
        )

    def scale(self, column: TableColumn) -> tuple[list[float], list[float]]:
        """Return the mean and deviation of each column of the vector, 0 and 1 for codes; empty cells are filled."""
        if column.kind in ("category", "hash", "smiles"):
            return [0.0] * len(column.counts), [1.0] * len(column.counts)
        mean, variance = self.mean[: self._parts], self.squares[: self._parts] / self.rows
        if column.indicator:
            empty = 1 - self.present / self.rows
            mean, variance = np.append(mean, empty), np.append(variance, empty * (1 - empty))
        deviation = np.sqrt(variance)
        return mean.tolist(), np.where(deviation > 0, deviation, 1.0).tolist()

    @property
    def _parts(self) -> int:
        """The number of parts that the conversion has: those of times of the day are left out if no date has one."""
        return len(self.mean) - (2 if self.kind == "date" and not self.times and len(self.mean) > 5 else 0)


def sums_of(column: pa.ChunkedArray, train: np.ndarray, kind: str, most_categories: int) -> ColumnSums:
    """Return the sums of a part of a column.

    Args:
        column: All rows of the part.
        train: The positions of its training rows.
        kind: `number`, `date`, `category` or `smiles`.
        most_categories: The number of categories from which more need not be known by name.
    """
    nothing = np.zeros(1)
    if kind == "smiles":
        texts = frozenset(column.take(pa.array(train)).unique().to_pylist()[:2])
        atoms, bonds = largest_molecule(column)
        return ColumnSums(kind, len(train), len(train), nothing, nothing, names=texts, atoms=atoms, bonds=bonds)
    if kind == "category":
        names, positions = distinct_names(column)
        in_train = np.unique(positions[train])[: most_categories + 1]
        in_part = [names[position] for position in np.unique(positions) if names[position] != EMPTY]
        hashes = np.unique(pd.util.hash_array(np.array(in_part, dtype=object)))[:_SKETCH]
        kept = frozenset(names[position] for position in in_train)
        return ColumnSums(kind, len(train), len(train), nothing, nothing, names=kept, hashes=hashes,
                          different=len(in_part))  # fmt: skip

    times = kind == "date" and has_times(column)
    with_times = pa.types.is_timestamp(column.type)
    cells = column.take(pa.array(train))
    values = numbers_of(cells, "date" if kind == "date" else "number", times=with_times)
    present = values[~np.isnan(values[:, 0])]
    if not len(present):
        zeros = np.zeros(values.shape[1])
        return ColumnSums(kind, len(values), 0, zeros, zeros, times=times)
    mean = present.mean(0)
    squares = ((present - mean) ** 2).sum(0)
    least, most = float(present[:, 0].min()), float(present[:, 0].max())
    if kind == "number" and pa.types.is_integer(column.type):
        least, most = pc.min_max(cells).as_py().values()
    return ColumnSums(kind, len(values), len(present), mean, squares, least, most, times)
