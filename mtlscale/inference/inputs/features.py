"""Conversion of a table's columns into a network's vectors, and detection of inputs unlike the training data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.config import UserError
from mtlscale.data.format.categories import as_text
from mtlscale.data.format.table_columns import TableColumn, from_json, unseen_count
from mtlscale.data.tables.arrow_types import by_text, is_text
from mtlscale.data.tables.missing_words import WORDS
from mtlscale.data.tables.notations import POINT, date_in, number_in
from mtlscale.data.tables.smiles import BadSmiles
from mtlscale.data.tables.table_format import TableFormat
from mtlscale.inference.description import InputDescription

if TYPE_CHECKING:
    import pyarrow as pa

    Array = np.ndarray[Any, Any]

NO_FEATURES = ("id", "task", "target", "label", "split", "weight")  # never features, for data without their names


@dataclass
class Unfamiliar:
    """Counts of inputs unlike the training data: far outside its range, with unknown values, or with empty cells."""

    far: int = 0  # inputs outside the range
    first: str = ""  # description of the first of them, and a likely cause
    unknown: Counter[str] = field(default_factory=Counter)  # column -> inputs
    empty: Counter[str] = field(default_factory=Counter)  # column, and what its empty cells are filled with -> inputs

    def add(self, other: Unfamiliar) -> None:
        """Add the counts of further inputs."""
        self.far, self.first = self.far + other.far, self.first or other.first
        self.unknown.update(other.unknown)
        self.empty.update(other.empty)

    def warnings(self, count: int) -> list[str]:
        """Return one warning per kind; `count` is the number of all inputs."""
        texts = []
        if self.far:
            texts.append(f"{self.far} of {count} inputs lie far outside the training range, the first: {self.first}")
        if self.unknown:
            counts_by_column = ", ".join(f"{name} ({number})" for name, number in self.unknown.items())
            texts.append(f"values that training does not have count as unknown: {counts_by_column}")
        if self.empty:
            fills = ", ".join(f"{number} of {column}" for column, number in self.empty.items())
            texts.append(f"{self.empty.total()} empty cells are filled: {fills}")
        return texts


def listed(names: Sequence[str], limit: int = 6) -> str:
    """Return the first `limit` names as text, and how many more there are."""
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "")


@dataclass
class TableFeatures:
    """Features of a table's rows.

    Attributes:
        values: The features [N, D], scaled as the data's were.
        problems: Row -> what it lacks, for rows that cannot be used.
        unfamiliar: Values that training does not have, and empty cells that were filled.
    """

    values: Array
    problems: dict[int, str]
    unfamiliar: Unfamiliar


def read_features(
    description: InputDescription, table: pa.Table, rows: Sequence[Any], form: TableFormat | None = None
) -> TableFeatures:
    """Read a table's features as the pipeline of its data did.

    Args:
        rows: Their numbers in messages.
        form: How the tables of the data were written.
    """
    columns = [from_json(entry) for entry in description.columns] or _columns_of_numbers(table)
    _check_present(table, [column.name for column in columns])
    if (sum(len(column.counts) for column in columns),) != description.shape:
        shape, names = ", ".join(map(str, description.shape)), listed([column.name for column in columns])
        raise UserError(f"the table has {len(columns)} columns of numbers ({names}), the model reads [N, {shape}] of "
                        f"{description.dtype}")  # fmt: skip

    arrays: list[Array] = []
    unfamiliar_cells, problems = Unfamiliar(), dict[int, str]()
    for column in columns:
        cells, wrong = _as_trained(column, table[column.name], form or TableFormat())
        try:
            array = column.encode(cells)
        except (ValueError, NotImplementedError):  # Arrow's errors are of these kinds
            raise UserError(f"column {column.name!r} holds {cells.type}, the model reads {column.kind}s") from None

        empty = _empty_cells(cells)
        empty[list(wrong)] = False
        count = int(empty.sum())
        if count and description.fills_empty:
            unfamiliar_cells.empty[f"{column.name!r} with {column.filling}"] = count
        elif count:
            wrong |= dict.fromkeys(np.flatnonzero(empty).tolist(), f"has no value in {column.name}")
        if unseen := unseen_count(column, array) - (count if column.unknown_if_empty else 0):
            unfamiliar_cells.unknown[column.name] = unseen

        infinite = dict.fromkeys(np.flatnonzero(~np.isfinite(array).all(1)).tolist(), f"is infinite in {column.name}")
        for row, problem in (infinite | wrong).items():
            problems.setdefault(row, f"row {rows[row]} {problem}")
        arrays.append(array)
    return TableFeatures(_scaled(description, np.column_stack(arrays)), problems, unfamiliar_cells)


def _as_trained(
    column: TableColumn, cells: pa.ChunkedArray, form: TableFormat
) -> tuple[pa.ChunkedArray, dict[int, str]]:
    """Return the cells of a column in the type that its conversion reads, and row -> problem of those that are none."""
    import pyarrow as pa

    if column.kind == "smiles":
        wrong: dict[int, str] = {}
        texts = cells.cast(pa.string())  # a table of empty cells alone has no texts
        for row, text in enumerate(texts.to_pylist()):
            try:
                column.molecule(text)
            except BadSmiles as error:
                wrong[row] = str(error)
        return texts, wrong
    if not is_text(cells.type):
        return cells, {}
    if column.kind in ("category", "hash"):
        return by_text(cells, partial(_category, column, form=form), pa.string()), {}

    def read(text: str) -> Any:
        if text.strip() in WORDS:
            return None
        return date_in(text, form.dates or ()) if column.kind == "date" else number_in(text, form.decimal or POINT)

    values = by_text(cells, read, pa.timestamp("us") if column.kind == "date" else pa.float64())
    is_wrong = values.is_null().to_numpy() & ~_empty_cells(cells)
    rows = [(row, cells[row].as_py()) for row in np.flatnonzero(is_wrong).tolist()]
    return values, {row: f"has {text[:40]!r} in {column.name}, which is no {column.kind}"
                    for row, text in rows if text.strip() not in WORDS}  # fmt: skip


def _empty_cells(cells: pa.ChunkedArray) -> Array:
    """Return the mask [N] of cells without a value."""
    import pyarrow.compute as pc

    if is_text(cells.type):
        cells = pc.if_else(pc.equal(pc.utf8_trim_whitespace(cells), ""), None, cells)
    floats = str(cells.type) in ("float", "double")
    return np.array(pc.is_null(cells, nan_is_null=floats).to_numpy(zero_copy_only=False))


def _category(column: TableColumn, text: str, form: TableFormat) -> str | None:
    """Return the name that a text has among the categories of training; None: an empty cell."""
    name = text.strip()
    if name in column.categories:
        return name
    if form.missing is None and name in WORDS:
        return None
    spellings = [name.lower()]  # true and false, and numbers, have one name in training
    with suppress(ValueError):
        spellings.append(as_text(float(name)))
    return next((spelling for spelling in spellings if spelling in column.categories), name)


def _scaled(description: InputDescription, values: Array) -> Array:
    if not description.mean:
        return values
    scaled: Array = (values - np.array(description.mean)) / np.array(description.deviation)
    return scaled


def unfamiliar(
    description: InputDescription, values: Array, rows: Sequence[Any], *, of_table: bool = True
) -> Unfamiliar:
    """Count the inputs [N, D] that lie outside the training range by more than its width in some column.

    `of_table`: they were standardised from the columns of a table, not handed over as the network reads them.
    """
    if not description.low or values.ndim != 2 or not len(values):
        return Unfamiliar()

    low, high = np.array(description.low), np.array(description.high)
    width = np.where(high > low, high - low, np.maximum(1.0, np.abs(high)))
    far = (values < low - width) | (values > high + width)
    inputs = far.any(1)
    if not inputs.any():
        return Unfamiliar()

    row = int(inputs.argmax())
    column = int(far[row].argmax())
    names = [part for entry in description.columns for part in from_json(entry).parts]
    name = names[column] if names else f"column {column + 1}"
    value, least, most = values[row, column], low[column], high[column]
    cause = "are they in the units of the data?"
    if description.mean and not of_table:
        cause = "an array is taken as scaled already: give a data frame for numbers in the units of the data"
    elif description.mean:  # in the units of the table, not of the network
        mean, deviation = description.mean[column], description.deviation[column]
        value, least, most = (number * deviation + mean for number in (value, least, most))
    text = f"row {rows[row]} has {value:.6g} in {name}, training {least:.4g} to {most:.4g}; {cause}"
    return Unfamiliar(int(inputs.sum()), text)


def _columns_of_numbers(table: pa.Table) -> list[TableColumn]:
    """Return the columns that can be features, for data without feature names."""
    return [
        TableColumn(name=name, kind="number")
        for name in table.column_names
        if name.lower() not in NO_FEATURES and not name.startswith("target.") and not is_text(table[name].type)
    ]


def _check_present(table: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        count = table.column_names.count(name)
        if count != 1:
            problem = "no" if count == 0 else "more than one"
            blanks = next((column for column in table.column_names if column.strip() == name != column), None)
            mend = "" if blanks is None else f", only {blanks!r} with blanks around it"
            raise UserError(f"the table has {problem} column {name!r}{mend}; the model reads {len(names)} features: "
                            f"{listed(names)}")  # fmt: skip
