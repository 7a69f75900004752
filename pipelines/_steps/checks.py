"""Checks of tables before they are written: rows in every split, finite numbers, labels that are classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from mtlscale.config import MISSING_CLASS, Task, TaskSuite, UserError


def check_tables(suite: TaskSuite, tables: Mapping[str, Mapping[str, pa.Table]]) -> None:
    """Raise `UserError` for the first stream without rows or the first sample with a bad value.

    A target may be NaN, which is a missing label. An input may not be NaN, and nothing may be infinite.

    Args:
        suite: The suite of the tables; categorical columns and token ids are checked against its ranges.
        tables: split -> stream -> table.
    """
    for split, streams in tables.items():
        for stream, table in streams.items():
            if not len(table) and (split == "train" or stream not in suite.unlabelled):
                owner = "".join(f"task {task}" for task in suite.streams[stream][:1]) or f"stream {stream}"
                raise UserError(
                    f"{suite.name}: {owner} has no sample in {split}: {stream} has no row there; "
                    "the source is too small, or lacks a part"
                )

            check_numbers(f"{suite.name}: {split} of {stream}", suite.tasks, table)
            if suite.categories:
                _check_codes(f"{suite.name}: {split} of {stream}", suite.categories, table)

            if suite.input_kind == "tokens" and suite.vocabulary_size is not None:
                token_count = max(suite.vocabulary_size, 2 + len(suite.extras.get("characters", ())))
                _check_range(f"{suite.name}: {split} of {stream}", table, "input", 0, token_count - 1, "token")


def _check_codes(where: str, categories: Sequence[int], table: pa.Table) -> None:
    """Raise `UserError` for the first sample with a code outside its column's categories."""
    values, width = _flat(table, "input")
    rows, counts = values.reshape(-1, width), np.array(categories)
    wrong = (counts > 0) & ((rows < 0) | (rows >= counts) | (rows != np.floor(rows)))

    if wrong.any():
        row, column = (int(indices[0]) for indices in np.nonzero(wrong))
        raise UserError(
            f"{where} has {rows[row, column]:g} in column {column + 1} of sample {table['id'][row]}; its codes are "
            f"0 to {counts[column] - 1}"
        )


def check_numbers(where: str, tasks: Iterable[Task], table: pa.Table) -> None:
    """Raise `UserError` for the first sample with a NaN or infinite number, or with a label outside its task."""
    for column in table.column_names:
        if not pa.types.is_large_binary(table[column].type):  # encoded pictures
            _check_finite(where, table, column)
    for task in tasks:
        if f"target.{task.name}" in table.column_names:
            check_labels(where, task, table)


def _check_finite(where: str, table: pa.Table, column: str) -> None:
    if column == "id":
        return

    values, width = _flat(table, column)
    if values.dtype.kind != "f":
        return

    bad = np.isinf(values) if column.startswith("target.") else ~np.isfinite(values)
    if bad.any():
        row, position = divmod(int(bad.argmax()), width)
        part = f"number {position + 1} of {column}" if width > 1 else column
        raise UserError(f"{where} has {values[bad][0]} in {part} of sample {table['id'][row]}; mend or drop that row")


def check_labels(where: str, task: Task, table: pa.Table) -> None:
    """Raise `UserError` for the first sample with a label that its task does not have.

    Nothing is rounded or clipped.
    """
    column = f"target.{task.name}"
    if task.loss == "cross_entropy":
        _check_range(where, table, column, MISSING_CLASS, task.outputs - 1, "class")
        return
    if task.loss not in ("bce", "soft_cross_entropy"):
        return

    values, width = _flat(table, column)
    is_valid = (values == 0) | (values == 1) if task.loss == "bce" else (values >= 0) & (values <= 1)
    if task.loss == "bce":
        is_valid |= values == MISSING_CLASS
    is_wrong = ~(is_valid | np.isnan(values)) if values.dtype.kind == "f" else ~is_valid

    if is_wrong.any():
        cell = int(is_wrong.argmax())
        allowed = "0, 1, or missing (-1 or NaN)" if task.loss == "bce" else "probabilities from 0 to 1, or NaN"
        raise UserError(
            f"{where} has {values[cell]:g} in {column} of sample {table['id'][cell // width]}; labels of {task.loss} "
            f"are {allowed}"
        )


def _check_range(where: str, table: pa.Table, column: str, low: int, high: int, what: str) -> None:
    values, width = _flat(table, column)
    wrong = (values < low) | (values > high)
    if wrong.any():
        cell = int(wrong.argmax())
        raise UserError(
            f"{where} has the {what} {values[cell]} in {column} of sample {table['id'][cell // width]}; there are "
            f"{max(low, 0)} to {high}{', -1 where it is missing' if low < 0 else ''}"
        )


def _flat(table: pa.Table, column: str) -> tuple[np.ndarray, int]:
    """Return all numbers of a column, and how many a sample has."""
    array = table[column].combine_chunks()
    width = 1
    if pa.types.is_fixed_size_list(array.type):
        width, array = array.type.list_size, array.flatten()
    return array.to_numpy(zero_copy_only=False), width
