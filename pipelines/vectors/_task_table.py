"""Tables with a column that names the task of each row: the settings that only they have, and their preparation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import Task, TaskSuite, UserError, knob, nearest
from mtlscale.data.format.categories import UNKNOWN, as_text, codes_of
from mtlscale.data.format.table_columns import by_kind
from mtlscale.data.tables.notations import Question
from mtlscale.data.tables.table_file import ROW, TableRead
from pipelines._steps.features import Vectors, random_split, seen_inputs, standardised, vector_tables
from pipelines._tables.inputs import no_input
from pipelines._tables.text_columns import Use, read_texts, refuse_questions
from pipelines.contract import PrepareContext, Prepared
from pipelines.vectors._own_table import OwnTable

MOST_CLASSES = 1000
MOST_CATEGORIES = 10_000  # categories of a column, at most


class TaskColumnTable(OwnTable):
    """Base of the settings of a table with a column of tasks."""

    task: str = knob("task", help="column that names the task")
    target: str = knob("target", help="column to predict")
    problem: str = knob("auto", choices=("auto", "classification", "regression"), help="auto: by the target's type")
    classes: str = knob("shared", choices=("shared", "own"), help="the same classes in all tasks, or each task its own")

    def prepared_tasks(self, source: Path, context: PrepareContext) -> Prepared:
        """Return a table whose rows belong to a task each."""
        read = self.read(source)
        self.refuse(read)
        names = self._feature_names(read, source)
        self._read_numbers(read, names)
        table, notes = self._complete(read, names, context)
        notes = read.notes | notes

        targets, classes = self._targets(table[self.target].combine_chunks())
        ids = _as_texts(table[self.id]) if self.id else np.array([f"{row:09d}" for row in table[ROW].to_pylist()])
        if len(np.unique(ids)) < len(ids):
            raise UserError(f"table: a value of the id column {self.id!r} occurs twice; it must name one row")
        rows_of = _tasks(_as_texts(table[self.task]))

        labels, classes_of, splits = {}, {}, {}
        for task, rows in rows_of.items():
            labels[task], classes_of[task] = _labels(task, targets[rows], classes, own=self.classes == "own")
            splits[task] = random_split(
                self.name,
                task,
                ids[rows],
                f"{self.name}/{self.split}",
                labels[task] if classes else None,
                test=self.test,
                validation=self.validation,
            )

        train = np.concatenate([rows_of[task][split["train"]] for task, split in splits.items()])
        features, categories = self._features(table, names, train, notes)
        options = {"standardise": self.standardise, "drop": self.constant == "drop"}
        varying = _varying(table.take(train), features[train], names, **options)
        features, names = features[:, varying], [name for name, varies in zip(names, varying, strict=True) if varies]

        counts = tuple(1 + len(categories[name]) if name in categories else 0 for name in names)
        numbers = np.array(counts) == 0
        if self.standardise and numbers.any():
            features, notes["standardised"] = standardised(features, train, numbers)

        samples = {
            task: Vectors(ids[rows], features[rows], labels[task], splits[task]) for task, rows in rows_of.items()
        }
        suite = TaskSuite(
            name=self.name,
            tasks=tuple(_task(task, task_classes) for task, task_classes in classes_of.items()),
            inputs="per_task",
            input_kind="vector",
            input_shape=(features.shape[1],),
            categories=counts if any(counts) else (),
        )

        notes["features"] = names
        if categories:
            notes["categories"] = {name: categories[name] for name in names if name in categories}
        if repeated := seen_inputs(samples):
            notes["test_inputs_in_train_or_val"] = repeated
        return Prepared(suite, vector_tables(samples), notes=notes)

    def _features(
        self, table: pa.Table, names: list[str], train: np.ndarray, notes: dict[str, Any]
    ) -> tuple[np.ndarray, dict[str, list[str]]]:
        """Return the features [N, D], categories as codes, and the values of each column of categories by code."""
        columns, categories, unseen = [], {}, {}
        for name in names:
            if name not in self.categorical:
                columns.append(table[name].to_numpy().astype(float))
                continue

            values = np.array([as_text(value) for value in table[name].to_pylist()], dtype=object)
            category_names = categories[name] = sorted(set(values[train]), key=by_kind)
            if len(category_names) > MOST_CATEGORIES:
                raise UserError(f"table: column {name!r} has {len(category_names)} categories, "
                                f"{MOST_CATEGORIES} at most; leave it out of `features` if it names rows")  # fmt: skip

            columns.append(codes_of(values, category_names).astype(float))
            if count := int((columns[-1] == UNKNOWN).sum()):
                unseen[name] = count

        if unseen:
            notes["unknown_categories"] = unseen
        return np.column_stack(columns), categories

    def _feature_names(self, read: TableRead, source: Path) -> list[str]:
        """Return the feature columns; `UserError` if a named column is missing."""
        table = read.table
        available = [name for name in table.column_names if name != ROW]
        for option, name in (("task", self.task), ("target", self.target), ("id", self.id)):
            if (name or option != "id") and name not in available:
                start = f"mtlscale inspect {source.name} --write {source.name.partition('.')[0]}.yaml"
                raise UserError(
                    f"table: there is no column {name!r}; {nearest(name, available)}; set the option {option}, or, for "
                    f"a table with a column per task, begin with `{start}`"
                )

        roles = {self.task, self.target, self.id}
        left_out = {name: reason for name in available if name not in (*roles, *self.features)
                    and (reason := no_input(table.schema.field(name)))}  # fmt: skip
        if left_out and not self.features:
            read.notes["left_out"] = left_out
        names = list(self.features) or [name for name in available if name not in roles and name not in left_out]
        if not names:
            raise UserError("table: there is no feature column beside task, target and id")

        for name in names:
            if name not in available:
                raise UserError(f"table: there is no column {name!r}; {nearest(name, available)}; correct `features`")
            if name in roles:
                raise UserError(f"table: column {name!r} is task, target or id and a feature as well; drop one role")
        self._check_categorical(table, names)
        return names

    def _read_numbers(self, read: TableRead, names: Sequence[str]) -> None:
        """Convert texts that are numbers in some notation; `UserError` if a feature is no number."""
        uses: dict[str, Use] = {name: "number" for name in names if name not in self.categorical}
        uses |= {self.target: "number"} if self.problem == "regression" else {}
        rows = [f"row {row + 1}" for row in read.table[ROW].to_pylist()]
        questions: dict[str, Question] = {}
        read.table = read_texts(read.table, uses, self.form, rows, read.problems, questions)
        refuse_questions(self.name, questions, "`categorical`, if it is none")
        for name in uses:
            kind = read.table[name].type
            if name != self.target and not _is_number(kind):
                raise UserError(f"table: feature {name!r} holds {kind}, no numbers; name it in `categorical`, or list "
                                "`features` without it")  # fmt: skip

    def _check_categorical(self, table: pa.Table, names: list[str]) -> None:
        for name in self.categorical:
            if name not in names:
                raise UserError(f"table: {name!r} of `categorical` is no feature; {nearest(name, names)}")
            if pa.types.is_floating(table[name].type) and not _is_whole(table[name].drop_null().combine_chunks()):
                raise UserError(
                    f"table: column {name!r} holds numbers that are not whole; leave it out of `categorical`"
                )

    def _complete(self, read: TableRead, names: list[str], context: PrepareContext) -> tuple[pa.Table, dict[str, Any]]:
        """Return the rows without an empty cell (or NaN, or infinity) in the columns that count."""
        table, problems = read.table, dict[int, str]()
        for name in (*names, self.task, self.target, *([self.id] if self.id else [])):
            problem_rows = {f"has no value in {name}": table[name].is_null()}
            if pa.types.is_floating(table[name].type):
                problem_rows[f"has no value in {name}"] = table[name].is_null(nan_is_null=True)
                problem_rows[f"is infinite in {name}"] = pc.fill_null(pc.is_inf(table[name]), False)
            for problem, rows in problem_rows.items():
                for row in np.flatnonzero(rows.to_numpy()):
                    problems.setdefault(int(row), problem)

        numbers = table[ROW].to_pylist()
        bad_cells = [(f"row {numbers[row] + 1}", problem) for row, problem in problems.items()]
        notes = context.settle([*read.problems, *bad_cells], "rows")
        is_complete = np.ones(len(table), dtype=bool)
        is_complete[list(problems)] = False
        if not is_complete.any():
            raise UserError("table: there is no complete row")
        return table.filter(pa.array(is_complete)), notes

    def _targets(self, column: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return numbers and no classes, or the code of each row's class and the classes in order."""
        number = _is_number(column.type)
        fractions = pa.types.is_floating(column.type) and not _is_whole(column)
        if self.problem == "regression" or (self.problem == "auto" and fractions):
            if not number:
                raise UserError(
                    f"table: target {self.target!r} holds {column.type}, no numbers; set `problem` to classification"
                )
            return column.to_numpy(zero_copy_only=False).astype(np.float32), ()

        distinct, codes = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
        floats = pa.types.is_floating(column.type)
        values = [as_text(value) if floats else str(value) for value in distinct.tolist()]

        mend = "set `problem` to regression" if number else "name another column by `target`"
        if len(values) > MOST_CLASSES or 2 * len(values) > len(codes):
            raise UserError(f"table: target {self.target!r} has {len(values)} classes in {len(codes)} rows; {mend}")
        if len(values) < 2:
            raise UserError(f"table: all labels of {self.target!r} are {values[0]}; there is nothing to learn")

        return codes, tuple(values)


def _labels(task: str, codes: np.ndarray, classes: tuple[str, ...], *, own: bool) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a task's targets and classes."""
    if not classes:
        return codes, ()

    present_codes, task_codes = np.unique(codes, return_inverse=True)
    if own:
        if len(present_codes) < 2:
            raise UserError(f"table: all labels of task {task} are {classes[present_codes[0]]}; leave the task out")
        return task_codes, tuple(classes[code] for code in present_codes)

    if len(present_codes) < len(classes):
        missing = next(name for code, name in enumerate(classes) if code not in present_codes)
        raise UserError(
            f"table: task {task} has no sample of class {missing}; leave the task out or set `classes` to own"
        )
    return codes, classes


def _varying(table: pa.Table, train: np.ndarray, names: list[str], *, standardise: bool, drop: bool) -> np.ndarray:
    """Return a mask of the features that vary over the training samples."""
    # Scaling keeps differences that float32 would lose.
    stored = train if standardise else train.astype(np.float32)
    varying = stored.max(0) > stored.min(0)

    constant = [name for name, varies in zip(names, varying, strict=True) if not varies]
    rounded_away = next((name for name in constant if pc.count_distinct(table[name]).as_py() > 1), None)
    if rounded_away is not None:
        raise UserError(
            f"table: feature {rounded_away!r} loses its differences in {stored.dtype}; take its smallest value off"
        )

    if constant and not drop:
        raise UserError(
            f"table: feature {constant[0]!r} is constant over the training samples; leave it out of `features` or "
            "set `constant` to drop"
        )
    if not varying.any():
        raise UserError("table: every feature is constant over the training samples; there is nothing to learn from")
    return varying


def _tasks(column: np.ndarray) -> dict[str, np.ndarray]:
    """Return task -> its rows; names become file names, so unusual characters become underscores."""
    tasks: dict[str, np.ndarray] = {}
    for value in np.unique(column):
        name = re.sub(r"[^\w.-]", "_", str(value))
        if name in tasks:
            raise UserError(f"table: task {str(value)!r} and another are both called {name} in file names; rename it")
        tasks[name] = np.flatnonzero(column == value)
    return tasks


def _task(name: str, classes: tuple[str, ...]) -> Task:
    if not classes:
        return Task(name=name, loss="mse", outputs=1, metrics=("rmse", "mae"))
    return Task(name=name, loss="cross_entropy", outputs=len(classes), metrics=("accuracy",), classes=classes)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _is_whole(column: pa.Array) -> bool:
    """Return whether all numbers are whole, as in a column of classes that once had an empty cell."""
    numbers = column.to_numpy(zero_copy_only=False)
    return bool((numbers == np.floor(numbers)).all())


def _as_texts(column: pa.ChunkedArray) -> np.ndarray:
    return np.array([str(value) for value in column.to_pylist()])
