"""Conversion of a table's columns into a network's vectors, and detection of inputs unlike the training data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.config import UserError
from mtlscale.data.format.categories import UNKNOWN, codes_of
from mtlscale.data.format.table_columns import TableColumn, from_json, unseen_count
from mtlscale.data.tables.table_format import TableFormat
from mtlscale.inference.description import InputDescription
from mtlscale.inference.inputs.trained_columns import as_trained, empty_cells

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
    if description.columns:
        return _read_columns(description, table, rows, form or TableFormat())
    names = description.features or _columns_of_numbers(table)
    _check_columns(description, table, names)

    columns: list[Array] = []
    unfamiliar_cells, problems = Unfamiliar(), dict[int, str]()
    for name in names:
        if name in description.categories:
            values = table[name].to_pylist()
            codes = codes_of(values, description.categories[name])
            if count := sum(value is not None for value, code in zip(values, codes, strict=True) if code == UNKNOWN):
                unfamiliar_cells.unknown[name] = count
            columns.append(np.where([value is None for value in values], np.nan, codes))
        else:
            columns.append(table[name].to_numpy().astype(np.float64))
        for row in np.flatnonzero(~np.isfinite(columns[-1])).tolist():
            problems.setdefault(row, f"row {rows[row]} has no value in {name}")

    return TableFeatures(_scaled(description, np.column_stack(columns)), problems, unfamiliar_cells)


def _read_columns(
    description: InputDescription, table: pa.Table, rows: Sequence[Any], form: TableFormat
) -> TableFeatures:
    """Do what `read_features` does for columns whose conversion the data noted; empty cells are filled."""
    columns = [from_json(entry) for entry in description.columns]
    _check_present(table, [column.name for column in columns])

    arrays: list[Array] = []
    unfamiliar_cells, problems = Unfamiliar(), dict[int, str]()
    for column in columns:
        cells, wrong = as_trained(column, table[column.name], form)
        for row, problem in wrong.items():
            problems.setdefault(row, f"row {rows[row]} {problem}")
        try:
            array = column.encode(cells)
        except (ValueError, NotImplementedError):  # Arrow's errors are of these kinds
            raise UserError(f"column {column.name!r} holds {cells.type}, the model reads {column.kind}s") from None
        empty = empty_cells(cells)
        empty[list(wrong)] = False
        if count := int(empty.sum()):
            unfamiliar_cells.empty[f"{column.name!r} with {column.filling}"] = count
        unseen = unseen_count(column, array) - (count if column.unknown_if_empty else 0)
        if unseen:
            unfamiliar_cells.unknown[column.name] = unseen
        for row in np.flatnonzero(~np.isfinite(array).all(1)).tolist():
            problems.setdefault(row, f"row {rows[row]} is infinite in {column.name}")
        arrays.append(array)
    return TableFeatures(_scaled(description, np.column_stack(arrays)), problems, unfamiliar_cells)


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
    columns: list[TableColumn] = [from_json(entry) for entry in description.columns]
    names = [part for one in columns for part in one.parts] or description.features
    name = names[column] if description.features else f"column {column + 1}"
    value, least, most = values[row, column], low[column], high[column]
    cause = "are they in the units of the data?"
    if description.mean and not of_table:
        cause = "an array is taken as scaled already: give a data frame for numbers in the units of the data"
    elif description.mean:  # in the units of the table, not of the network
        mean, deviation = description.mean[column], description.deviation[column]
        value, least, most = (number * deviation + mean for number in (value, least, most))
    text = f"row {rows[row]} has {value:.6g} in {name}, training {least:.4g} to {most:.4g}; {cause}"
    return Unfamiliar(int(inputs.sum()), text)


def _columns_of_numbers(table: pa.Table) -> list[str]:
    """Return the columns that can be features, for data without feature names."""
    return [
        name
        for name in table.column_names
        if name.lower() not in NO_FEATURES and not name.startswith("target.") and not _is_string(table[name].type)
    ]


def _check_columns(description: InputDescription, table: pa.Table, names: Sequence[str]) -> None:
    import pyarrow as pa

    _check_present(table, names)
    for name in names:
        kind = table[name].type
        number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        if not number and name not in description.categories:
            raise UserError(f"column {name!r} holds {kind}, the model reads numbers")

    if len(names) != description.shape[0] or len(description.shape) > 1:
        shape = ", ".join(map(str, description.shape))
        raise UserError(
            f"the table has {len(names)} columns of numbers ({listed(names)}), the model reads [N, {shape}] of "
            f"{description.dtype}"
        )


def _check_present(table: pa.Table, names: Sequence[str]) -> None:
    for name in names:
        count = table.column_names.count(name)
        if count != 1:
            problem = "no" if count == 0 else "more than one"
            blanks = next((column for column in table.column_names if column.strip() == name != column), None)
            mend = "" if blanks is None else f", only {blanks!r} with blanks around it"
            raise UserError(f"the table has {problem} column {name!r}{mend}; the model reads {len(names)} features: "
                            f"{listed(names)}")  # fmt: skip


def _is_string(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
