"""Columns to be wary of: those that give a label away, name rows, never vary, or repeat another column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.format.table_columns import distinct_names
from pipelines._tables.targets import Target

_FEW_ROWS = 20  # fewer rows show nothing
_ROWS_OF_A_VALUE = 5  # rows that a value has on average if the column names no rows
_ALMOST_ONE = 1 - 1e-7  # a correlation


def perfect_predictors(
    columns: Mapping[str, pa.ChunkedArray], targets: Sequence[Target], train: np.ndarray
) -> dict[str, str]:
    """Return input column -> target that it gives away without an error over the training rows."""
    given_away = {}
    for target in targets:
        if target.kind == "multilabel":
            continue
        rows = train[target.present[train]]
        if len(rows) < _FEW_ROWS:
            continue

        for name, column in columns.items():
            if name not in given_away and _gives_away(column.take(rows), target, target.values[rows]):
                given_away[name] = target.column
    return given_away


def _gives_away(column: pa.ChunkedArray, target: Target, labels: np.ndarray) -> bool:
    numbers = _as_numbers(column)
    if target.kind == "regression":
        if numbers is None or np.isnan(numbers).any() or np.ptp(numbers) == 0 or np.ptp(labels) == 0:
            return False
        return bool(abs(np.corrcoef(numbers, labels)[0, 1]) > _ALMOST_ONE)

    label_names, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(label_names) < 2:
        return False
    positions = np.unique(distinct_names(column)[1], return_inverse=True)[1]
    values = int(positions.max()) + 1
    if len(positions) >= _ROWS_OF_A_VALUE * values:
        return len(np.unique(positions * len(label_names) + codes)) == values

    if numbers is None or np.isnan(numbers).any():
        return False
    order = np.argsort(numbers, kind="stable")
    changes = codes[order][1:] != codes[order][:-1]
    steps = numbers[order][1:] != numbers[order][:-1]
    return bool(changes.sum() == len(label_names) - 1 and not (changes & ~steps).any())


def row_names(name: str, column: pa.ChunkedArray) -> str:
    """Return the reason why a column seems to name rows, or "" if it does not."""
    if name.strip() == "" or name.startswith("Unnamed:"):
        return "it has no name, as the index of a data frame"
    values = column.drop_null()
    if len(values) < _FEW_ROWS or pa.types.is_nested(column.type):
        return ""
    distinct = pc.count_distinct(values).as_py()

    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return f"{distinct} different texts in {len(values)} rows" if 2 * distinct > len(values) else ""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)) or distinct < len(values):
        return ""

    numbers = values.to_numpy().astype(float)
    if (numbers != np.floor(numbers)).any():
        return ""
    steps = np.diff(numbers)
    if (steps == 1).all():
        return "counts the rows"
    is_dense = np.ptp(numbers) < 4 * len(numbers)
    return "a different whole number in each row" if (steps > 0).all() or is_dense else ""


def duplicates(columns: Mapping[str, pa.ChunkedArray]) -> dict[str, str]:
    """Return column -> earlier column with the same values."""
    first_with: dict[tuple[object, ...], str] = {}
    repeated = {}
    for name, column in columns.items():
        if pa.types.is_nested(column.type):
            continue
        names, positions = distinct_names(column)
        key = (tuple(names), positions.tobytes())
        earlier = first_with.setdefault(key, name)
        if earlier != name:
            repeated[name] = earlier
    return repeated


def _as_numbers(column: pa.ChunkedArray) -> np.ndarray | None:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        return None
    return column.cast(pa.float64(), safe=False).to_numpy().astype(float)
