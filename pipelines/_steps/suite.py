"""Checks of a pipeline's result before anything is written: the tasks, and the shape of the tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, nearest
from mtlscale.data.format.columns import WIDTH
from mtlscale.metrics import all_metrics, check_task
from pipelines.contract import Prepared

# The losses of `mtlscale.training.losses` (not imported, because it needs torch), and the labels of each.
LABELS = {
    "cross_entropy": "classes, whole numbers from 0",
    "soft_cross_entropy": "a probability for every class",
    "bce": "0 or 1",
    "mse": "numbers",
    "l1": "numbers",
    "cosine": "vectors",
    "welsch": "numbers",
}
_LONGEST = 100  # characters of a task's name, which files, columns and tables carry


def check_prepared(name: str, prepared: object) -> Prepared:
    """Return the pipeline's result if it is valid.

    Raises:
        UserError: It is no `Prepared`, its tasks cannot be trained, or its tables lack what the tasks need.
    """
    where = f"pipeline {name}"
    if not isinstance(prepared, Prepared):
        returned = "nothing" if prepared is None else f"a {type(prepared).__name__}"
        raise UserError(f"{where}: `prepare` returns {returned}; return Prepared(suite, tables)")

    suite = prepared.suite
    if not isinstance(suite, TaskSuite):
        raise UserError(f"{where}: its suite is a {type(suite).__name__}; describe the tasks in a TaskSuite")

    _check_suite(where, suite)
    for task in suite.tasks:
        _check_task(f"{where}: task {task.name}", task)
    _check_shapes(where, prepared)
    if prepared.pieces is None:
        _check_tables(where, suite, prepared)
    elif len(suite.streams) > 1 and not all("stream" in index.column_names for index in prepared.pieces.index.values()):
        raise UserError(f"{where}: a set in pieces with several streams names the stream of every row in a column "
                        "`stream` of its index; add it, or set inputs to shared and unlabelled to ()")  # fmt: skip

    return prepared


def _check_suite(where: str, suite: TaskSuite) -> None:
    if not isinstance(suite.tasks, tuple | list) or not suite.tasks:
        raise UserError(f"{where}: its suite has no tasks; name at least one")
    not_a_task = next((task for task in suite.tasks if not isinstance(task, Task)), None)
    if not_a_task is not None:
        raise UserError(f"{where}: a task of its suite is a {type(not_a_task).__name__}; make it a Task")

    names = [task.name for task in suite.tasks]
    for task in names:
        if not isinstance(task, str) or not 0 < len(task) <= _LONGEST or "/" in task or not task.isprintable():
            shown = repr(task)[: _LONGEST + 2]
            raise UserError(f"{where}: a task is called {shown}; files are named by it: use at most {_LONGEST} "
                            "letters and no slash")  # fmt: skip
        if task.startswith(".") or names.count(task) > 1:
            problem = "begins with a dot" if task.startswith(".") else "is there twice"
            raise UserError(f"{where}: task {task} {problem}; rename one")

    for field, value, allowed in (
        ("inputs", suite.inputs, ("per_task", "shared")),
        ("input_kind", suite.input_kind, ("vector", "tokens", "image")),
    ):
        if value not in allowed:
            raise UserError(f"{where}: {field} = {value!r} is unknown; choose {', '.join(allowed)}")

    shape = suite.input_shape
    if not _is_shape(shape) or not shape or (suite.input_kind == "image" and len(shape) != 3):
        expected = "(channels, height, width)" if suite.input_kind == "image" else "whole numbers of at least 1"
        raise UserError(f"{where}: input_shape = {shape!r} of {suite.input_kind} inputs should be {expected}")

    columns = math.prod(shape) if suite.input_kind == "vector" and len(shape) == 1 else 0
    if suite.categories and len(suite.categories) != columns:
        raise UserError(f"{where}: categories has {len(suite.categories)} entries for {suite.input_kind} inputs of "
                        f"shape {tuple(shape)}; give one for each column of a vector, 0 for a number")  # fmt: skip
    if not all(isinstance(count, int) and count >= 0 for count in suite.categories):
        raise UserError(f"{where}: categories holds {suite.categories!r}; write how many codes each column has")

    if suite.per_token and any(task.per != "token" or task.loss != "cross_entropy" for task in suite.tasks):
        raise UserError(f"{where}: some of its tasks have classes for each token and others do not; make it two suites")
    if suite.input_kind == "tokens" and not _is_count(suite.vocabulary_size):
        raise UserError(f"{where}: vocabulary_size = {suite.vocabulary_size!r}; tokens need the number of words")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple | list) and all(map(_is_count, value))


def _check_task(where: str, task: Task) -> None:
    if task.loss not in LABELS:
        raise UserError(f"{where}: unknown loss {task.loss!r}: {nearest(str(task.loss), list(LABELS))}")
    if not _is_count(task.outputs):
        raise UserError(f"{where}: outputs = {task.outputs!r} should be a whole number of at least 1")
    if task.loss == "cross_entropy" and task.outputs < 2:
        raise UserError(f"{where}: cross_entropy needs at least 2 outputs, one per class; use bce for one")

    if isinstance(task.metrics, str) or not task.metrics:
        problem = f"the text {task.metrics!r}" if task.metrics else "empty"
        raise UserError(f"{where}: metrics is {problem}; name at least one, as in metrics=('{_fitting(task)[0]}',)")
    for metric in task.metrics:
        if not isinstance(metric, str):
            raise UserError(f"{where}: metrics holds {metric!r}; name metrics by their names")

    try:
        check_task(task)
    except UserError as error:
        raise UserError(f"{where}: {str(error).partition(': ')[2]}") from None

    labels = 2 if task.loss == "bce" else task.outputs
    if task.classes and len(task.classes) != labels:
        raise UserError(f"{where}: {len(task.classes)} names of classes for {labels} classes; name all or none")


def _fitting(task: Task) -> list[str]:
    return [name for name, metric in all_metrics().items() if task.loss in metric.losses]


def _check_shapes(where: str, prepared: Prepared) -> None:
    names = [task.name for task in prepared.suite.tasks]
    for task, shape in prepared.target_shapes.items():
        if task not in names:
            raise UserError(f"{where}: target_shapes has {task!r}, which is no task; {nearest(str(task), names)}")
        if not _is_shape(shape):
            raise UserError(f"{where}: target_shapes of {task} is {shape!r}; write whole numbers of at least 1")


def _check_tables(where: str, suite: TaskSuite, prepared: Prepared) -> None:
    for split in SPLITS:
        streams = prepared.tables.get(split) if isinstance(prepared.tables, Mapping) else None
        if not isinstance(streams, Mapping):
            raise UserError(f"{where}: its tables have no split {split}; give {', '.join(SPLITS)}")
        for stream, tasks in suite.streams.items():
            table = streams.get(stream)
            if not isinstance(table, pa.Table):
                problem = "is missing" if table is None else f"is a {type(table).__name__}, no Arrow table"
                raise UserError(f"{where}: the table of {stream} in {split} {problem}; streams: {_some(suite)}")

            columns = ["id", "input", *(f"target.{task}" for task in tasks), *(["weight"] if suite.weighted else [])]
            for column in columns:
                if table.column_names.count(column) != 1:
                    problem = "no" if column not in table.column_names else "more than one"
                    raise UserError(f"{where}: {split} of {stream} has {problem} column {column!r}; it has "
                                    f"{', '.join(table.column_names[:9])}")  # fmt: skip
                if table[column].null_count:
                    raise UserError(f"{where}: {split} of {stream} has empty cells in {column}; a label that is "
                                    "missing is -1 (classes) or NaN (numbers)")  # fmt: skip

            _check_types(f"{where}: {split} of {stream}", suite, prepared, table, tasks)


def _some(suite: TaskSuite) -> str:
    return ", ".join(list(suite.streams)[:9])


def _check_types(where: str, suite: TaskSuite, prepared: Prepared, table: pa.Table, tasks: tuple[str, ...]) -> None:
    if not pa.types.is_string(table["id"].type):
        raise UserError(f"{where}: column 'id' holds {table['id'].type}; make the ids texts")
    if suite.per_token and pa.types.is_large_binary(table["input"].type):
        _check_sequences(where, suite, table)
    else:
        _check_numbers(where, "input", table["input"].type, tuple(suite.input_shape))
    if suite.input_kind == "tokens" and not pa.types.is_integer(_values(table["input"].type)):
        raise UserError(f"{where}: column 'input' holds {table['input'].type}; tokens are whole numbers")
    for task in suite.tasks:
        if task.name in tasks:
            column = f"target.{task.name}"
            shape = prepared.target_shapes.get(task.name)
            _check_target(where, column, table[column].type, task, None if shape is None else tuple(shape))


def _check_sequences(where: str, suite: TaskSuite, table: pa.Table) -> None:
    """Check samples that are the bytes of float16 vectors, at most as many as the shape says."""
    if suite.input_kind != "vector" or len(suite.input_shape) != 2:
        raise UserError(f"{where}: column 'input' holds bytes; of sequences of vectors input_kind is vector, and "
                        "input_shape (most tokens, numbers of each)")  # fmt: skip
    most, size = suite.input_shape
    counts = pc.binary_length(table["input"]).to_numpy()
    wrong = (counts % (WIDTH * size) != 0) | (counts > most * WIDTH * size)
    if wrong.any():
        row = int(wrong.argmax())
        expected = f"{WIDTH * size} for each of at most {most} tokens"
        raise UserError(f"{where}: sample {table['id'][row]} has {counts[row]} bytes; it wants {expected}")


def _check_target(where: str, column: str, kind: pa.DataType, task: Task, shape: tuple[int, ...] | None) -> None:
    if pa.types.is_string(_values(kind)) or pa.types.is_large_string(_values(kind)):
        raise UserError(
            f"{where}: column {column!r} holds texts; {task.loss} wants {LABELS[task.loss]}: number the classes from 0 "
            "and name them in the task's `classes`"
        )
    if task.per == "token" and shape is None:
        raise UserError(f"{where}: column {column!r} is of a task per token; say in target_shapes how many it has")

    usual = (task.outputs,) if task.loss != "cross_entropy" and task.outputs > 1 else ()
    _check_numbers(where, column, kind, usual if shape is None else shape)
    if task.loss == "cross_entropy" and not pa.types.is_integer(_values(kind)):
        raise UserError(
            f"{where}: column {column!r} holds {_values(kind)}; cross_entropy wants {LABELS[task.loss]} (-1: missing)"
        )
    if task.loss in ("soft_cross_entropy", "cosine") and not pa.types.is_floating(_values(kind)):
        raise UserError(f"{where}: column {column!r} holds {_values(kind)}; {task.loss} wants {LABELS[task.loss]}")


def _values(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_fixed_size_list(kind) else kind


def _check_numbers(where: str, column: str, kind: pa.DataType, shape: tuple[int, ...]) -> None:
    """Check a column of numbers, or of fixed-size lists of them."""
    inner = _values(kind)
    if not (pa.types.is_integer(inner) or pa.types.is_floating(inner)):
        raise UserError(f"{where}: column {column!r} holds {kind}; it wants numbers")
    expected_size = math.prod(shape)
    list_size: Any = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    if list_size is None and column != "input" and expected_size == 1:
        return
    if list_size != expected_size:
        actual = "single numbers" if list_size is None else f"lists of {list_size}"
        raise UserError(f"{where}: column {column!r} holds {actual}; the suite has a shape of {list(shape)}, which is "
                        f"{expected_size} a sample")  # fmt: skip
