"""Columns of a raw table as columns of a vector: numbers, dates and categories, fitted on the training rows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mtlscale.data.format.categories import UNKNOWN, as_text, codes_of
from mtlscale.data.format.graphs import GraphLayout
from mtlscale.data.format.molecules import molecule_layout, molecule_row, table_molecule
from mtlscale.data.tables.smiles import BadSmiles, Molecule

if TYPE_CHECKING:
    import pyarrow as pa

    Array = np.ndarray[Any, Any]

Kind = Literal["number", "date", "category", "hash", "smiles"]
EMPTY = ""  # the category of an empty cell
DATE_PARTS = ("days", "year sine", "year cosine", "week sine", "week cosine")
TIME_PARTS = ("day sine", "day cosine")
_DAY = 86_400.0  # seconds
_YEAR, _WEEK = 365.2425, 7.0  # days


@dataclass(frozen=True, kw_only=True)
class TableColumn:
    """The conversion of one raw column into columns of a vector.

    Attributes:
        name: The raw column.
        kind: `number`; `date`, which becomes days since 1970 and positions in the year, the week and, if it has
            times, the day; `category`, which becomes a code; `hash`, a code of `buckets` by a hash of the value;
            `smiles`, a molecule, which becomes a graph and is the only column.
        categories: The values of a category in the order of their codes, from 1; `EMPTY` is that of empty cells.
        buckets: The number of codes of a hashed column, from 1.
        fill: Value of empty cells: the mean of each part over the training rows.
        indicator: Whether another column says if the cell was empty (1) or not (0).
        times: Whether the values of a date have times of the day.
        atoms: The most atoms of a molecule.
        bonds: The most bonds of a molecule.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    buckets: int = 0
    fill: tuple[float, ...] = ()
    indicator: bool = False
    times: bool = False
    atoms: int = 0
    bonds: int = 0

    @property
    def graph(self) -> GraphLayout:
        """The layout of the graphs that molecules become."""
        return molecule_layout(self.atoms, self.bonds)

    @property
    def parts(self) -> list[str]:
        """The names of the columns of the vector."""
        names = [self.name]
        if self.kind == "smiles":
            names = [f"{self.name} {column}" for column in range(1, len(self.graph.categories) + 1)]
        if self.kind == "date":
            names = [f"{self.name} {part}" for part in (*DATE_PARTS, *(TIME_PARTS if self.times else ()))]
        return [*names, *([f"{self.name} is empty"] if self.indicator else [])]

    @property
    def counts(self) -> list[int]:
        """The number of codes of each column of the vector, 0 for numbers, as `TaskSuite.categories` has them."""
        if self.kind in ("category", "hash"):
            return [1 + (len(self.categories) or self.buckets)]
        if self.kind == "smiles":
            return list(self.graph.categories)
        return [0] * len(self.parts)

    @property
    def unknown_if_empty(self) -> bool:
        """Whether an empty cell counts as an unknown category: training has none."""
        return self.kind == "category" and EMPTY not in self.categories

    @property
    def filling(self) -> str:
        """What stands for an empty cell, in words."""
        if self.kind in ("category", "hash"):
            return "the code of unknown categories" if self.unknown_if_empty else "the category of empty cells"
        return f"the training mean {self.fill[0]:.5g}" if self.kind == "number" else "the mean of the training dates"

    def encode(self, column: pa.ChunkedArray) -> Array:
        """Return the columns [N, parts] of the vector; an empty number is NaN if no mean is known for it."""
        if self.kind in ("category", "hash"):
            names, positions = distinct_names(column)
            codes = codes_of(names, self.categories) if self.kind == "category" else _hashed(names, self.buckets)
            column_codes: Array = codes[positions].astype(float)[:, None]
            return column_codes
        if self.kind == "smiles":
            return self._graphs(column)

        values = numbers_of(column, self.kind, times=self.times)
        empty = np.isnan(values[:, 0])
        if self.fill:
            values = np.where(np.isnan(values), np.array(self.fill), values)
        return np.column_stack([values, empty.astype(float)]) if self.indicator else values

    def as_json(self) -> dict[str, Any]:
        """Return the conversion as notes of a prepared set and exported models keep it."""
        entry = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        if self.kind != "smiles":
            del entry["atoms"], entry["bonds"]
        return entry

    def molecule(self, text: str | None) -> Molecule:
        """Return the molecule of a cell.

        Raises:
            BadSmiles: If the cell holds none, or a larger one than the graphs of the column hold.
        """
        molecule = molecule_of(self.name, text)
        sizes = (len(molecule.elements), self.atoms, "atoms"), (len(molecule.bonds), self.bonds, "bonds")
        for count, most, parts in sizes:
            if count > most:
                raise BadSmiles(f"has a molecule of {count} {parts} in {self.name}, the largest of the data has {most}")
        return molecule

    def _graphs(self, column: pa.ChunkedArray) -> Array:
        """Return molecules [N, columns] as rows of graphs; a cell without one is NaN."""
        layout = self.graph
        rows: Array = np.full((len(column), len(layout.categories)), np.nan, np.float32)
        for row, text in enumerate(column.to_pylist()):
            with suppress(BadSmiles):
                rows[row] = molecule_row(self.molecule(text), layout)
        return rows


def from_json(entry: Mapping[str, Any]) -> TableColumn:
    """Return the conversion that `TableColumn.as_json` wrote."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
    return TableColumn(**values)


def largest_molecule(column: pa.ChunkedArray) -> tuple[int, int]:
    """Return the most atoms and the most bonds of a molecule in a column; cells without one are passed over."""
    atoms = bonds = 0
    for text in column.to_pylist():
        with suppress(BadSmiles):
            molecule = molecule_of("", text)
            atoms, bonds = max(atoms, len(molecule.elements)), max(bonds, len(molecule.bonds))
    return atoms, bonds


def molecule_of(name: str, text: str | None) -> Molecule:
    """Return the molecule of a cell in column `name`.

    Raises:
        BadSmiles: If it holds none; the message is the end of "row 3 …".
    """
    if text is None or not text.strip():
        raise BadSmiles(f"has no molecule in {name}")
    try:
        return table_molecule(text)
    except BadSmiles as error:
        raise BadSmiles(f"has {text.strip()[:40]!r} in {name}, no SMILES: it {error}") from None


def unseen_count(column: TableColumn, encoded: Array) -> int:
    """Return the number of rows [N, parts] with a value that the training rows do not have."""
    return int((encoded[:, 0] == UNKNOWN).sum()) if column.kind == "category" else 0


def category_names(column: pa.ChunkedArray) -> Array:
    """Return a column's values [N] as names of categories, `EMPTY` for empty cells."""
    names, codes = distinct_names(column)
    all_names: Array = np.array(names, dtype=object)[codes]
    return all_names


def distinct_names(column: pa.ChunkedArray) -> tuple[list[str], Array]:
    """Return the different names of a column's values, and the position [N] of each row's among them."""
    import pyarrow as pa

    values = column.combine_chunks()
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode(null_encoding="encode")
    cells = [*values.dictionary.to_pylist(), None]
    as_name = str if pa.types.is_string(values.dictionary.type) else as_text  # of texts there are the most
    texts = [EMPTY if cell is None or cell != cell else as_name(cell).strip() for cell in cells]
    names = list(dict.fromkeys(texts))
    position_of = {name: position for position, name in enumerate(names)}

    positions = np.array([position_of[text] for text in texts])
    indices = values.indices.fill_null(len(cells) - 1).to_numpy(zero_copy_only=False)
    return names, positions[indices]


def by_kind(name: str) -> tuple[bool, float, str]:
    """Return a key that orders categories that are numbers by size, others by the alphabet."""
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def numbers_of(column: pa.ChunkedArray, kind: Kind, *, times: bool = False) -> Array:
    """Return a column of numbers or dates as floats [N, parts], NaN for empty cells."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind != "date":
        numbers: Array = column.cast(pa.float64(), safe=False).to_numpy().astype(float)[:, None]
        return numbers

    stamps = pc.cast(column, pa.timestamp("us"), safe=False)
    microseconds = pc.cast(stamps, pa.int64()).to_numpy(zero_copy_only=False).astype(float)
    microseconds[column.is_null().to_numpy()] = math.nan
    days = microseconds / 1e6 / _DAY
    positions = [2 * np.pi * days / _YEAR, 2 * np.pi * days / _WEEK, *([2 * np.pi * days] if times else [])]
    return np.column_stack([days, *(wave for angle in positions for wave in (np.sin(angle), np.cos(angle)))])


def has_times(column: pa.ChunkedArray) -> bool:
    """Return whether some value is not at midnight."""
    import pyarrow as pa

    if not pa.types.is_timestamp(column.type):
        return False
    days = numbers_of(column, "date")[:, 0]
    return bool((days[~np.isnan(days)] % 1 != 0).any())


def _hashed(names: Sequence[str], buckets: int) -> Array:
    """Return the codes 1 to `buckets` of values, the same on every machine."""
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.array([1 + int.from_bytes(digest, "big") % buckets for digest in digests], dtype=np.int64)


def encode_all(columns: Sequence[TableColumn], table: pa.Table) -> Array:
    """Return the vectors [N, parts of all columns] of a table's rows."""
    return np.column_stack([column.encode(table[column.name]) for column in columns])
