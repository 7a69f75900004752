"""Target columns of a table: their kinds, and their cells as the labels of tasks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import MISSING_CLASS, SPLITS, Task, UserError
from mtlscale.data.format.categories import as_text
from mtlscale.data.format.table_columns import by_kind, category_names
from mtlscale.data.tables.arrow_types import CATEGORY, NUMBER, declared_kind, is_text
from mtlscale.data.tables.raw_files import Problems
from pipelines._tables.text_columns import FEW_VALUES, Use

KINDS = ("auto", "class", "regression", "multilabel")
SEPARATORS = (";", "|", ",")
MOST_CLASSES = 1000
_MOST_LETTERS = 100  # of a task's name

Splits = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Target:
    """Target column as it was read.

    Attributes:
        column: The column.
        kind: `class`, `regression` or `multilabel`.
        values: Class names ("" where missing), numbers (NaN where missing), or sets of tags (None where missing) [N].
    """

    column: str
    kind: str
    values: np.ndarray

    @property
    def present(self) -> np.ndarray:
        """The mask [N] of the rows with a label."""
        if self.kind == "regression":
            return ~np.isnan(self.values)
        return np.array([value is not None and value != "" for value in self.values], bool)

    @property
    def codes(self) -> np.ndarray:
        """The class of each row as a number, -1 where there is none or this is no target of classes."""
        if self.kind != "class":
            return np.full(len(self.values), MISSING_CLASS)
        codes = np.unique(self.values.astype(str), return_inverse=True)[1]
        return np.where(self.present, codes, MISSING_CLASS)


def task_name(column: str) -> str:
    """Return a column's name as that of a task, which files carry: unusual characters become underscores."""
    return re.sub(r"[^\w.-]", "_", column)[:_MOST_LETTERS].lstrip(".") or "_"


def check_kinds(pipeline: str, targets: Mapping[Any, Any]) -> None:
    """Raise `UserError` for a target without a known kind, or two whose tasks would have one name."""
    for column, kind in targets.items():
        if not isinstance(column, str):
            raise UserError(f"{pipeline}: target {column!r} is no text; put the column's name in quotes")
        if kind not in KINDS:
            raise UserError(f"{pipeline}: target {column!r} is of kind {kind!r}; choose {', '.join(KINDS)}")

    counts = Counter(map(task_name, map(str, targets)))
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{pipeline}: two targets are both called {twice} in file names; rename a column")


def guess_kind(table: pa.Table, name: str, separator: str = "auto") -> tuple[str, str]:
    """Return the kind that the file declares for a column, or that its values suggest, and the reason."""
    column, declared = table[name], declared_kind(table.schema.field(name))
    kind, values = column.type, column.drop_null()
    if declared in (CATEGORY, NUMBER):
        distinct = pc.count_distinct(values).as_py()
        kinds = {CATEGORY: ("class", f"declared as a category, {distinct} different"), NUMBER: ("regression",
                 "declared as a number")}  # fmt: skip
        return kinds[declared]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "multilabel", "lists of tags"
    if pa.types.is_boolean(kind):
        return "class", "true and false"
    if _is_date(kind):
        return "class", "dates"

    if _is_number(kind):
        numbers = values.to_numpy().astype(float)
        numbers = numbers[np.isfinite(numbers)]
        if (numbers != np.floor(numbers)).any():
            return "regression", "numbers with fractions"
        distinct = len(np.unique(numbers))
        if distinct <= FEW_VALUES and 2 * distinct <= len(numbers):
            return "class", f"{distinct} different whole numbers"
        return "regression", f"{distinct} different whole numbers, too many for classes"

    texts = [text for text in map(str, values.to_pylist()) if text]
    distinct = len(set(texts))
    mark = _separator(texts, separator)
    if mark and 5 * sum(mark in text for text in texts) >= len(texts):
        tags = {tag.strip() for text in texts for tag in text.split(mark)}
        if len(tags) < distinct:
            return "multilabel", f"{len(tags)} tags separated by {mark}"
    return "class", f"{distinct} different texts"


def target_uses(schema: pa.Schema, targets: Mapping[str, str]) -> dict[str, Use]:
    """Return the targets whose texts may be numbers -> what they are needed for."""
    uses: dict[str, Use] = {"auto": "target", "regression": "number"}
    return {
        name: uses[kind]
        for name, kind in targets.items()
        if kind == "regression" or (kind == "auto" and declared_kind(schema.field(name)) != CATEGORY)
    }


def read_target(
    pipeline: str, table: pa.Table, column: str, kind: str, separator: str, rows: Sequence[str], problems: Problems
) -> Target:
    """Return a target column as it is; cells that cannot be used are added to the problems.

    Args:
        pipeline: The pipeline, for messages.
        kind: Its kind, or `auto`.
        separator: The text between tags, or `auto`.
        rows: The name of each row in messages.
        problems: (row, problem), extended here.

    Raises:
        UserError: The column holds no values of this kind at all.
    """
    cells = table[column]
    guessed = kind == "auto"
    kind = guess_kind(table, column, separator)[0] if guessed else kind
    if not len(cells.drop_null()):
        raise UserError(f"{pipeline}: target {column!r} has no value in any row; leave it out of `targets`")

    if _is_date(cells.type) and (guessed or kind == "regression"):
        raise UserError(
            f"{pipeline}: target {column!r} holds dates, which are neither classes nor numbers; name another target, "
            "or set its kind to class if each date is one"
        )

    if kind == "multilabel":
        return Target(column, kind, _tags(pipeline, cells, column, separator))
    if pa.types.is_nested(cells.type):
        raise UserError(f"{pipeline}: target {column!r} holds {cells.type}; set its kind to multilabel")
    if not (is_text(cells.type) or _is_number(cells.type) or _is_date(cells.type) or pa.types.is_boolean(cells.type)):
        raise UserError(f"{pipeline}: target {column!r} holds {cells.type}, no classes or numbers; leave it out")
    if kind == "regression":
        return Target(column, kind, _numbers(cells, column, rows, problems))

    if pa.types.is_floating(cells.type) and declared_kind(table.schema.field(column)) != CATEGORY:
        numbers = cells.to_numpy().astype(float)
        fractions = np.flatnonzero(np.isfinite(numbers) & (numbers != np.floor(numbers)))
        if len(fractions):
            raise UserError(
                f"{pipeline}: target {column!r} has the number {numbers[fractions[0]]:g} in {rows[fractions[0]]}; "
                "classes are texts or whole numbers: set its kind to regression"
            )
    return Target(column, kind, category_names(cells))


def labels_of(
    pipeline: str, target: Target, splits: Splits, rows: Sequence[str], problems: Problems
) -> list[tuple[Task, np.ndarray]]:
    """Return the tasks of a target and their labels [N], classes those of the training rows.

    Rows of other classes are added to the problems.
    """
    if target.kind == "regression":
        return [_regression(pipeline, target, splits)]
    if target.kind == "class":
        return [_classes(pipeline, target, splits, rows, problems)]
    return _tag_tasks(pipeline, target, splits)


def _regression(pipeline: str, target: Target, splits: Splits) -> tuple[Task, np.ndarray]:
    values = target.values[splits["train"]]
    values = values[~np.isnan(values)]
    if not len(values) or values.min() == values.max():
        problem = f"is always {values[0]:g}" if len(values) else "has no value"
        raise UserError(f"{pipeline}: target {target.column!r} {problem} in training; leave it out of `targets`")
    task = Task(name=task_name(target.column), loss="mse", outputs=1, metrics=("rmse", "mae"))
    return task, target.values.astype(np.float64)


def _classes(
    pipeline: str, target: Target, splits: Splits, rows: Sequence[str], problems: Problems
) -> tuple[Task, np.ndarray]:
    names, present = target.values, target.present
    classes = sorted({name for name in names[splits["train"]] if name}, key=by_kind)
    where = f"{pipeline}: target {target.column!r}"
    if len(classes) < 2:
        only = f"is always {classes[0]}" if classes else "has no value"
        raise UserError(f"{where} {only} in training; leave it out of `targets`")
    if len(classes) > MOST_CLASSES or 2 * len(classes) > present.sum():
        raise UserError(
            f"{where} has {len(classes)} classes in {present.sum()} rows; set its kind to regression, or leave it out"
        )

    code_of = {name: code for code, name in enumerate(classes)}
    codes = np.array([code_of.get(name, MISSING_CLASS) for name in names])
    for row in np.flatnonzero(present & (codes == MISSING_CLASS)).tolist():
        problems.append((rows[row], f"has the class {names[row]} of {target.column}, which training does not have"))

    if len(classes) > 2:
        task = Task(name=task_name(target.column), loss="cross_entropy", outputs=len(classes), metrics=("accuracy",),
                    classes=tuple(classes))  # fmt: skip
        return task, codes.astype(np.int64)
    metrics = ("auroc", "accuracy", "f1") if _in_all_splits(codes, splits) else ("accuracy", "f1")
    task = Task(name=task_name(target.column), loss="bce", outputs=1, metrics=metrics, classes=tuple(classes))
    return task, codes.astype(np.int64)


def _tag_tasks(pipeline: str, target: Target, splits: Splits) -> list[tuple[Task, np.ndarray]]:
    """Return a task per tag that every split has and lacks at least once; other tags cannot be measured."""
    tags = sorted({tag for row in splits["train"] for tag in target.values[row] or ()}, key=by_kind)
    if len(tags) > MOST_CLASSES:
        raise UserError(
            f"{pipeline}: target {target.column!r} has {len(tags)} tags, {MOST_CLASSES} at most; set `separator`, or "
            "its kind to class"
        )

    tasks, names = [], Counter(task_name(f"{target.column}_{tag}") for tag in tags)
    for tag in tags:
        name = task_name(f"{target.column}_{tag}")
        if names[name] > 1:
            raise UserError(f"{pipeline}: two tags of {target.column!r} are called {name} in file names; rename one")
        has_tag = np.array([MISSING_CLASS if row is None else int(tag in row) for row in target.values])
        if _in_all_splits(has_tag, splits):
            task = Task(name=name, loss="bce", outputs=1, metrics=("auroc", "accuracy", "f1"), classes=("no", "yes"))
            tasks.append((task, has_tag.astype(np.int64)))

    if not tasks:
        raise UserError(f"{pipeline}: no tag of {target.column!r} is in all of train, val and test; leave it out")
    return tasks


def _in_all_splits(codes: np.ndarray, splits: Splits) -> bool:
    return all({0, 1} <= set(codes[splits[split]].tolist()) for split in SPLITS)


def _numbers(cells: pa.ChunkedArray, column: str, rows: Sequence[str], problems: Problems) -> np.ndarray:
    if _is_number(cells.type):
        numbers = cells.cast(pa.float64(), safe=False).to_numpy().astype(float)
    else:
        numbers = np.full(len(cells), np.nan)
        for row, value in enumerate(cells.to_pylist()):
            if value is None or not str(value).strip():
                continue
            try:
                numbers[row] = float(value)
            except (TypeError, ValueError):
                problems.append((rows[row], f"has {str(value)[:40]!r} in {column}, which is no number"))

    infinite = np.isinf(numbers)
    problems += [(rows[row], f"is infinite in {column}") for row in np.flatnonzero(infinite).tolist()]
    return np.where(infinite, np.nan, numbers)


def _tags(pipeline: str, cells: pa.ChunkedArray, column: str, separator: str) -> np.ndarray:
    """Return the set of tags of each row; a cell of text without one has no tags, a list that is null is missing."""
    values, tags = cells.to_pylist(), np.empty(len(cells), dtype=object)
    if pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type):
        for row, value in enumerate(values):
            tags[row] = None if value is None else {as_text(tag).strip() for tag in value if tag is not None}
        return tags

    if not is_text(cells.type):
        raise UserError(f"{pipeline}: target {column!r} holds {cells.type}, no tags; set its kind to class")
    mark = _separator([value for value in values if value], separator) or ";"
    for row, value in enumerate(values):
        tags[row] = {tag.strip() for tag in (value or "").split(mark)} - {""}
    return tags


def _separator(texts: Sequence[str], separator: str) -> str:
    """Return the text between tags: the given one, or the first known one that occurs; "" if there is none."""
    if separator != "auto":
        return separator
    return next((mark for mark in SEPARATORS if any(mark in text for text in texts)), "")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_date(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))
