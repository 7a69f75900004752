"""Columns to be wary of: those that give a label away, name rows, never vary, or repeat another column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.format.table_columns import distinct_names
from mtlscale.data.tables.arrow_types import is_text
from pipelines._tables.targets import Target

_FEW_ROWS = 20  # fewer rows show nothing
_ROWS_OF_A_VALUE = 5  # rows that a value has on average if the column names no rows
_ALMOST_ONE = 1 - 1e-7  # a correlation
_NEARLY = 0.99  # share of a target's variance, or of its rows, that a column explains
_BINS = 32  # of a number, to guess a class by
_AS_INDEX = "it has no name, as the index of a data frame"


def perfect_predictors(
    columns: Mapping[str, pa.ChunkedArray], targets: Sequence[Target], train: np.ndarray
) -> dict[str, str]:
    """Return input column -> target that it gives away without an error over the training rows."""
    perfect: dict[str, str] = {}
    for target, rows in _measurable(targets, train):
        for name, column in columns.items():
            if name not in perfect and _gives_away(column.take(rows), target, target.values[rows]):
                perfect[name] = target.column
    return perfect


def near_predictors(
    columns: Mapping[str, pa.ChunkedArray], targets: Sequence[Target], train: np.ndarray
) -> dict[str, str]:
    """Return input column -> words on the target that it gives away nearly.

    A number does so that explains 99 % of another one's variance, by a line or any smooth curve; and any column by
    which 99 % of the classes are guessed.
    """
    near: dict[str, str] = {}
    for target, rows in _measurable(targets, train):
        explained = _explained_variance if target.kind == "regression" else _guessed_rows
        for name, column in columns.items():
            if name in near:
                continue
            share = explained(column.take(rows), target.values[rows])
            if share > _NEARLY:
                measure = "r² " if target.kind == "regression" else "share of its rows "
                below_one = f"{min(share, 0.9999):.4f}".rstrip("0")
                near[name] = f"target {target.column!r} ({measure}{below_one})"
    return near


def _measurable(targets: Sequence[Target], train: np.ndarray) -> list[tuple[Target, np.ndarray]]:
    """Return the targets of one label a row with their labelled training rows, if these are enough."""
    rows = {target.column: train[target.present[train]] for target in targets if target.kind != "multilabel"}
    return [(target, rows[target.column]) for target in targets if len(rows.get(target.column, ())) >= _FEW_ROWS]


def _explained_variance(column: pa.ChunkedArray, labels: np.ndarray) -> float:
    """Return the share of the labels' variance that a column explains: by a line, a smooth curve, or its categories."""
    if np.ptp(labels) == 0:
        return 0.0
    numbers = _as_numbers(column)
    if numbers is None:
        return _between_categories(column, labels)
    if np.isnan(numbers).any() or np.ptp(numbers) == 0:
        return 0.0
    linear = np.corrcoef(numbers, labels)[0, 1] ** 2
    # Neighbours by the column have nearly the same label if that is a smooth function of it; rows of one value stand
    # in an order that the labels do not decide.
    shuffled = np.random.default_rng(0).permutation(len(labels))
    ordered = labels[shuffled][np.argsort(numbers[shuffled], kind="stable")]
    smooth = 1 - np.square(np.diff(ordered)).mean() / (2 * labels.var())
    return float(max(linear, smooth))


def _between_categories(column: pa.ChunkedArray, labels: np.ndarray) -> float:
    if pa.types.is_nested(column.type):
        return 0.0
    positions = np.unique(distinct_names(column)[1], return_inverse=True)[1]
    counts = np.bincount(positions)
    if len(labels) < _ROWS_OF_A_VALUE * len(counts):
        return 0.0
    means = np.bincount(positions, labels) / counts
    return float(1 - np.square(labels - means[positions]).mean() / labels.var())


def _guessed_rows(column: pa.ChunkedArray, labels: np.ndarray) -> float:
    """Return the share of rows whose class is the most frequent one of their value, or of their range of a number."""
    classes, codes = np.unique(labels.astype(str), return_inverse=True)
    counts = np.bincount(codes)
    if len(classes) < 2 or counts.max() > _NEARLY * len(codes):
        return 0.0
    positions = np.unique(distinct_names(column)[1], return_inverse=True)[1]
    numbers = _as_numbers(column)
    if len(positions) < _ROWS_OF_A_VALUE * (int(positions.max()) + 1):
        if numbers is None or np.isnan(numbers).any():
            return 0.0
        edges = np.quantile(numbers, np.linspace(0, 1, min(_BINS, len(numbers) // _ROWS_OF_A_VALUE) + 1)[1:-1])
        positions = np.searchsorted(edges, numbers)
    table = np.zeros((int(positions.max()) + 1, len(classes)), int)
    np.add.at(table, (positions, codes), 1)
    return float(table.max(1).sum() / len(codes))


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
        return _AS_INDEX
    values = column.drop_null()
    if len(values) < _FEW_ROWS or pa.types.is_nested(column.type):
        return ""
    distinct = pc.count_distinct(values).as_py()

    if is_text(column.type):
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
