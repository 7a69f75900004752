"""Input columns of a table with several targets: their kinds, their bad cells, and their conversion to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError, nearest
from mtlscale.data.format.table_columns import TableColumn, fit_category, fit_number, unseen_count
from pipelines._formats.table_file import ROW
from pipelines._formats.text_files import Problems

_MOSTLY = 0.9  # share of cells that are numbers in a column of numbers with some texts
_LOOKED_AT = 1000  # rows after which a column is plainly one of texts
_EXACT = 2.0**53  # whole floats from here on lose digits


@dataclass(frozen=True, kw_only=True)
class InputColumns:
    """The inputs of a table, as its options describe them."""

    pipeline: str
    features: tuple[str, ...]
    categorical: tuple[str, ...]
    most_categories: int
    buckets: int

    def names(self, table: pa.Table, roles: Sequence[str]) -> list[str]:
        """Return the input columns; `UserError` if a named one is missing, is a target, or cannot be an input.

        Args:
            table: The table.
            roles: Columns with another role, which are no inputs unless `features` names them.
        """
        available = [name for name in table.column_names if name != ROW]
        names = list(self.features) or [name for name in available if name not in roles]
        for option, listed in (("features", names), ("categorical", self.categorical)):
            for name in listed:
                if name not in available:
                    hint = nearest(name, available)
                    raise UserError(f"{self.pipeline}: there is no column {name!r}; {hint}; correct `{option}`")

        for name in self.categorical:
            if name not in names:
                raise UserError(f"{self.pipeline}: {name!r} of `categorical` is no feature; {nearest(name, names)}")
        if not names:
            raise UserError(f"{self.pipeline}: there is no input column beside the targets")

        for name in names:
            if input_kind(table[name].type) is None:
                raise UserError(
                    f"{self.pipeline}: column {name!r} holds {table[name].type}, no numbers, dates or texts; list "
                    "`features` without it"
                )
        return names

    def parsed(self, table: pa.Table, names: Sequence[str], rows: Sequence[str], problems: Problems) -> pa.Table:
        """Return the table with columns of numbers among which some cells hold texts as numbers.

        Those cells, and infinite numbers, are added to the problems.
        """
        for name in names:
            column = table[name]
            if name in self.categorical:
                continue
            if pa.types.is_floating(column.type):
                infinite = np.flatnonzero(pc.fill_null(pc.is_inf(column), False).to_numpy()).tolist()
                problems += [(rows[row], f"is infinite in {name}") for row in infinite]
            if input_kind(column.type) != "category":
                continue

            parsed = text_numbers(column)
            if parsed is None or not mostly_numbers(len(parsed[1]), parsed[2]):
                continue
            numbers, wrong, _ = parsed
            problems += [(rows[row], problem_in_numbers(name, str(column[row].as_py()))) for row in wrong]
            table = table.set_column(table.column_names.index(name), name, numbers)
        return table

    def kind(self, name: str, type: pa.DataType) -> str:
        """Return what an input of this type becomes: number, date or category."""
        return "category" if name in self.categorical else input_kind(type) or "category"

    def fit(self, table: pa.Table, names: Sequence[str], train: np.ndarray) -> list[TableColumn]:
        """Return the conversion of every input column, fitted on the rows of train."""
        columns = []
        for name in names:
            kind = self.kind(name, table[name].type)
            if kind == "category":
                columns.append(fit_category(name, table[name], train, self.most_categories, self.buckets))
            else:
                columns.append(fit_number(name, table[name], train, "date" if kind == "date" else "number"))
        return columns


def encoded(columns: Sequence[TableColumn], table: pa.Table) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the inputs [N, D], not scaled yet, and notes on unseen and hashed categories."""
    arrays = {column.name: column.encode(table[column.name]) for column in columns}
    unseen = {column.name: count for column in columns if (count := unseen_count(column, arrays[column.name]))}
    hashed = {column.name: pc.count_distinct(table[column.name]).as_py() for column in columns if column.kind == "hash"}

    notes: dict[str, Any] = {"unknown_categories": unseen} if unseen else {}
    if hashed:
        notes["hashed_categories"] = hashed
    return np.column_stack(list(arrays.values())), notes


def input_kind(kind: pa.DataType) -> str | None:
    """Return what a column of this type becomes: number, date or category; None if it cannot be an input."""
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
    ):
        return "number"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return "date"
    if pa.types.is_dictionary(kind):
        return input_kind(kind.value_type)
    return "category" if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind) else None


def check_ids(pipeline: str, option: str, table: pa.Table, name: str) -> None:
    """Raise `UserError` if a column of ids or groups holds floats that cannot name rows."""
    if not pa.types.is_floating(table[name].type):
        return

    numbers = table[name].to_numpy().astype(float)
    with np.errstate(invalid="ignore"):
        bad = np.flatnonzero((numbers != np.floor(numbers)) & np.isfinite(numbers) | (np.abs(numbers) >= _EXACT))
    if len(bad):
        row, value = table[ROW][int(bad[0])].as_py() + 1, numbers[bad[0]]
        fraction = value != np.floor(value)
        problem, shown = ("has a fraction", f"{value:g}") if fraction else ("has lost its last digits", f"{value:.0f}")
        raise UserError(f"{pipeline}: column {name!r} of `{option}` holds floats, and {shown} in row {row} {problem}; "
                        "save the ids as texts or whole numbers")  # fmt: skip


def text_numbers(column: pa.ChunkedArray, *, gives_up: bool = True) -> tuple[pa.Array, list[int], int] | None:
    """Return a column of texts as numbers, null where a text is none, the rows of those, and the number of texts.

    With `gives_up`, None is returned if the first thousand rows are plainly texts: the rest is not looked at.
    """
    numbers: list[float | None] = []
    wrong, count = [], 0
    for row, value in enumerate(column.to_pylist()):
        numbers.append(None)
        if value is None or not value.strip():
            continue
        count += 1
        try:
            numbers[-1] = float(value)
        except ValueError:
            wrong.append(row)
        if gives_up and row == _LOOKED_AT and len(wrong) > count / 2:
            return None
    return pa.array(numbers, pa.float64()), wrong, count


def mostly_numbers(wrong: int, count: int) -> bool:
    """Return whether a column with so many texts, some of which are no numbers, is one of numbers."""
    return bool(count) and wrong <= (1 - _MOSTLY) * count and wrong < count


def problem_in_numbers(name: str, text: str) -> str:
    """Return the problem of a row with a text in a column of numbers."""
    return (
        f"has {text[:40]!r} in {name}, whose other cells are numbers; name the column in `categorical`, or the text "
        "in `missing`"
    )
