"""Input columns of a table with several targets: their kinds, their bad cells, and their conversion to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError, nearest
from mtlscale.data.format.table_columns import molecule_of
from mtlscale.data.tables.arrow_types import CATEGORY, WEIGHT, declared_kind, is_text
from mtlscale.data.tables.smiles import BadSmiles
from mtlscale.data.tables.table_file import ROW
from pipelines._tables.text_columns import Use

BESIDE_MOLECULES = "the molecule is the input"
_EXACT = 2.0**53  # whole floats from here on lose digits


@dataclass(frozen=True, kw_only=True)
class InputColumns:
    """The inputs of a table, as its options describe them: the column of `smiles`, if there is one, or all others."""

    pipeline: str
    features: tuple[str, ...]
    categorical: tuple[str, ...]
    most_categories: int
    buckets: int
    smiles: str = ""
    complete: bool = False  # whether a row needs a value in every input

    def names(self, table: pa.Table, roles: Sequence[str], notes: dict[str, Any]) -> list[str]:
        """Return the input columns; `UserError` if a named one is missing, is a target, or cannot be an input.

        Columns without any value, and those without a name or of weights that `features` does not name, are left out.

        Args:
            roles: Columns with another role, which are no inputs unless `features` names them.
            notes: Notes on the set, extended by the columns that are left out.
        """
        available = [name for name in table.column_names if name != ROW]
        if self.smiles:
            return self._molecules(table, available, roles, notes)
        named = list(self.features) or [name for name in available if name not in roles]
        left_out = {name: reason for name in named if name in available and not (self.complete and self.features) and
                    (reason := no_input(table.schema.field(name), named=bool(self.features)))}  # fmt: skip
        if left_out:
            notes["left_out"] = left_out
        names = [name for name in named if name not in left_out]
        for option, listed in (("features", names), ("categorical", self.categorical)):
            for name in listed:
                if name not in available:
                    hint = nearest(name, available)
                    raise UserError(f"{self.pipeline}: there is no column {name!r}; {hint}; correct `{option}`")

        for name in self.categorical:
            if name not in named:
                raise UserError(f"{self.pipeline}: {name!r} of `categorical` is no feature; {nearest(name, named)}")
        if not names:
            raise UserError(f"{self.pipeline}: there is no input column beside {', '.join(roles)}")

        for name in names:
            if input_kind(table[name].type) is None:
                raise UserError(
                    f"{self.pipeline}: column {name!r} holds {table[name].type}, no numbers, dates or texts; list "
                    "`features` without it"
                )
        return names

    def _molecules(
        self, table: pa.Table, available: Sequence[str], roles: Sequence[str], notes: dict[str, Any]
    ) -> list[str]:
        """Return the column of molecules, which is the only input."""
        column = f"column {self.smiles!r} of `smiles`"
        if self.smiles not in available:
            raise UserError(f"{self.pipeline}: there is no column {self.smiles!r}; {nearest(self.smiles, available)}; "
                            "correct `smiles`")  # fmt: skip
        if self.smiles in roles:
            raise UserError(f"{self.pipeline}: {column} has another role; drop one")
        for option, listed in (("features", self.features), ("categorical", self.categorical)):
            if others := [name for name in listed if name != self.smiles or option == "categorical"]:
                raise UserError(f"{self.pipeline}: {column} is the only input, `{option}` has {others[0]!r}; drop "
                                f"`{option}`, or `smiles`")  # fmt: skip
        if not is_text(table[self.smiles].type):
            raise UserError(f"{self.pipeline}: {column} holds {table[self.smiles].type}, no texts; name another one")

        if left_out := [name for name in available if name not in (self.smiles, *roles)]:
            notes["left_out"] = dict.fromkeys(left_out, BESIDE_MOLECULES)
        return [self.smiles]

    def bad_molecules(self, table: pa.Table) -> dict[int, str]:
        """Return position -> problem of the rows without a molecule."""
        problems: dict[int, str] = {}
        is_there = bool(self.smiles) and self.smiles in table.column_names
        for position, text in enumerate(table[self.smiles].to_pylist() if is_there else ()):
            try:
                molecule_of(self.smiles, None if text is None else str(text))
            except BadSmiles as error:
                problems[position] = str(error)
        return problems

    def empty_cells(self, table: pa.Table) -> dict[str, list[int]]:
        """Return column -> positions without a value, if rows need one in every input."""
        cells = {}
        for name in table.column_names if self.complete else ():
            column = table[name]
            if is_text(column.type) and name not in self.categorical:
                column = pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
            cells[name] = np.flatnonzero(~is_present(column)).tolist()
        return cells

    def uses(self, table: pa.Table, names: Sequence[str]) -> dict[str, Use]:
        """Return the inputs whose texts may be numbers or dates: those that nobody calls categories."""
        return {name: "input" for name in names if self.kind(table.schema.field(name)) == "category"
                and name not in self.categorical and declared_kind(table.schema.field(name)) != CATEGORY}  # fmt: skip

    def kind(self, field: pa.Field) -> str:
        """Return what an input becomes: number, date, category or smiles."""
        if self.smiles and field.name == self.smiles:
            return "smiles"
        if field.name in self.categorical or declared_kind(field) == CATEGORY:
            return "category"
        return input_kind(field.type) or "category"


def no_input(field: pa.Field, *, named: bool = False) -> str:
    """Return the reason why a column cannot be an input, or "" if it can.

    Args:
        named: Whether the user names it.
    """
    if pa.types.is_null(field.type):
        return "it has no value in any row"
    if named:
        return ""
    if not field.name.strip() or field.name.startswith("Unnamed:"):
        return "it has no name, as the index of a data frame"
    return "it holds the weights of the rows; set `weight` to use them" if declared_kind(field) == WEIGHT else ""


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
    return "category" if is_text(kind) else None


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


def has_fractions(column: pa.ChunkedArray) -> bool:
    """Return whether a column has numbers that are not whole."""
    if not pa.types.is_floating(column.type):
        return False
    numbers = column.drop_null().to_numpy()
    return bool((np.isfinite(numbers) & (numbers != np.floor(numbers))).any())


def is_present(column: pa.ChunkedArray) -> np.ndarray:
    """Return the mask [N] of the cells with a value; NaN counts as none."""
    is_float = pa.types.is_floating(column.type)
    return ~pc.is_null(column, nan_is_null=is_float).to_numpy(zero_copy_only=False)


def infinite_cells(column: pa.ChunkedArray) -> list[int]:
    """Return the rows with an infinite number."""
    if not pa.types.is_floating(column.type):
        return []
    return np.flatnonzero(pc.fill_null(pc.is_inf(column), False).to_numpy()).tolist()
