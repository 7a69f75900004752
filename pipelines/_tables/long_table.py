"""Tables in long form: a column names the task of each row, and tasks have inputs of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.config import Task, TaskSuite, UserError, nearest
from mtlscale.data.format.categories import as_text
from mtlscale.data.format.table_columns import TableColumn
from mtlscale.data.tables.notations import Question
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_file import ROW
from pipelines._steps.features import random_split
from pipelines._tables.inputs import has_fractions, infinite_cells, is_present
from pipelines._tables.table_rules import Labels, TableRules, UsableRows, row_names
from pipelines._tables.targets import MOST_CLASSES
from pipelines._tables.text_columns import Use, refuse_questions
from pipelines.contract import PrepareContext

MOST_CATEGORIES = 10_000  # categories of a column, at most


@dataclass(frozen=True, kw_only=True)
class LongTable(TableRules):
    """The options of a table in long form, with a column of tasks.

    Attributes:
        file: The name of the file, for messages.
        task: Column that names the task.
        target: Column to predict.
        problem: `classification`, `regression` or `auto`: by the target's type.
        own_classes: Whether each task has its own classes.
        test: Share of the samples of each task for test.
        validation: Share of the rest for validation.
        split: Which random split.
    """

    file: str
    task: str
    target: str
    problem: str
    own_classes: bool
    test: float
    validation: float
    split: int

    def roles(self, columns: Sequence[str]) -> list[str]:
        named = {option: name for option in ("task", "target", "id") if (name := getattr(self, option))}
        for option, name in named.items():
            if name not in columns:
                start = f"mtlscale inspect {self.file} --write {self.file.partition('.')[0]}.yaml"
                raise UserError(
                    f"{self.pipeline}: there is no column {name!r}; {nearest(name, columns)}; set the option {option}, "
                    f"or, for a table with a column per task, begin with `{start}`"
                )
        for name in self.inputs.features:
            if name in named.values():
                raise UserError(
                    f"{self.pipeline}: column {name!r} is task, target or id and a feature as well; drop one role"
                )
        return list(named.values())

    def uses(self, table: pa.Table, names: Sequence[str]) -> dict[str, Use]:
        uses: dict[str, Use] = {name: "number" for name in names if name not in self.inputs.categorical}
        return uses | ({self.target: "number"} if self.problem == "regression" else {})

    def ask(self, questions: Mapping[str, Question], notes: dict[str, Any]) -> None:
        refuse_questions(self.pipeline, questions, "`categorical`, if it is none")

    def check(self, schema: pa.Schema, names: Sequence[str], fractions: Mapping[str, bool]) -> None:
        for name in names:
            kind = schema.field(name).type
            if name in self.inputs.categorical:
                if fractions[name]:
                    raise UserError(f"{self.pipeline}: column {name!r} holds numbers that are not whole; leave it out "
                                    "of `categorical`")  # fmt: skip
            elif not _is_number(kind):
                raise UserError(f"{self.pipeline}: feature {name!r} holds {kind}, no numbers; name it in "
                                "`categorical`, or list `features` without it")  # fmt: skip

    def usable(
        self, table: pa.Table, bad_cells: Problems, problems: Problems, notes: dict[str, Any], context: PrepareContext
    ) -> UsableRows:
        rows = row_names(table)
        for name in self.roles(table.column_names):
            bad_cells += [
                (rows[row], f"has no value in {name}") for row in np.flatnonzero(~is_present(table[name])).tolist()
            ]
            bad_cells += [(rows[row], f"is infinite in {name}") for row in infinite_cells(table[name])]
        notes |= context.settle([*problems, *dict(reversed(bad_cells)).items()], "rows")
        bad = {row for row, _ in bad_cells}
        table = table.filter(pa.array([row not in bad for row in rows]))
        if not len(table):
            raise UserError(f"{self.pipeline}: there is no complete row")

        targets, classes = self._targets(table[self.target].combine_chunks())
        numbers = table[ROW].to_pylist()
        ids = _as_texts(table[self.id]) if self.id else np.array([f"{row:09d}" for row in numbers])
        if len(np.unique(ids)) < len(ids):
            raise UserError(f"{self.pipeline}: a value of the id column {self.id!r} occurs twice; it must name one row")

        streams, labels = self._streams(_as_texts(table[self.task])), []
        splits: dict[str, list[np.ndarray]] = {}
        for name, chosen in streams.items():
            values, task_classes = self._labels(name, targets[chosen], classes)
            labels.append((_task(name, task_classes), values))
            parts = random_split(self.pipeline, name, ids[chosen], f"{self.pipeline}/{self.split}",
                                 values if classes else None, test=self.test, validation=self.validation)  # fmt: skip
            for split, positions in parts.items():
                splits.setdefault(split, []).append(chosen[positions])
        rows_of = {split: np.concatenate(parts) for split, parts in splits.items()}
        return UsableRows(table, ids, labels, rows_of, streams)

    def suite(self, rows: UsableRows, columns: Sequence[TableColumn]) -> tuple[TaskSuite, Labels]:
        hashed = next((column.name for column in columns if column.kind == "hash"), None)
        if hashed is not None:
            raise UserError(f"{self.pipeline}: column {hashed!r} has more than {MOST_CATEGORIES} categories; leave it "
                            "out of `features` if it names rows")  # fmt: skip
        counts = tuple(count for column in columns for count in column.counts)
        suite = TaskSuite(
            name=self.pipeline,
            tasks=tuple(task for task, _ in rows.labels),
            inputs="per_task",
            input_kind="vector",
            input_shape=(len(counts),),
            categories=counts if any(counts) else (),
        )
        return suite, rows.labels

    def note(self, columns: Sequence[TableColumn]) -> dict[str, Any]:
        categories = {column.name: list(column.categories) for column in columns if column.kind == "category"}
        return {"features": [column.name for column in columns]} | ({"categories": categories} if categories else {})

    def _targets(self, column: pa.Array) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return numbers and no classes, or the code of each row's class and the classes in order."""
        number, where = _is_number(column.type), f"{self.pipeline}: target {self.target!r}"
        if self.problem == "regression" or (self.problem == "auto" and has_fractions(column)):
            if not number:
                raise UserError(f"{where} holds {column.type}, no numbers; set `problem` to classification")
            return column.to_numpy(zero_copy_only=False).astype(np.float32), ()

        distinct, codes = np.unique(column.to_numpy(zero_copy_only=False), return_inverse=True)
        floats = pa.types.is_floating(column.type)
        values = [as_text(value) if floats else str(value) for value in distinct.tolist()]

        mend = "set `problem` to regression" if number else "name another column by `target`"
        if len(values) > MOST_CLASSES or 2 * len(values) > len(codes):
            raise UserError(f"{where} has {len(values)} classes in {len(codes)} rows; {mend}")
        if len(values) < 2:
            raise UserError(
                f"{self.pipeline}: all labels of {self.target!r} are {values[0]}; there is nothing to learn"
            )
        return codes, tuple(values)

    def _streams(self, column: np.ndarray) -> dict[str, np.ndarray]:
        """Return task -> its rows; names become file names, so unusual characters become underscores."""
        tasks: dict[str, np.ndarray] = {}
        for value in np.unique(column):
            name = re.sub(r"[^\w.-]", "_", str(value))
            if name in tasks:
                raise UserError(f"{self.pipeline}: task {str(value)!r} and another are both called {name} in file "
                                "names; rename it")  # fmt: skip
            tasks[name] = np.flatnonzero(column == value)
        return tasks

    def _labels(self, task: str, codes: np.ndarray, classes: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return a task's targets and classes."""
        if not classes:
            return codes, ()

        present_codes, task_codes = np.unique(codes, return_inverse=True)
        if self.own_classes:
            if len(present_codes) < 2:
                only = classes[present_codes[0]]
                raise UserError(f"{self.pipeline}: all labels of task {task} are {only}; leave the task out")
            return task_codes, tuple(classes[code] for code in present_codes)

        if len(present_codes) < len(classes):
            missing = next(name for code, name in enumerate(classes) if code not in present_codes)
            raise UserError(
                f"{self.pipeline}: task {task} has no sample of class {missing}; leave the task out or set `classes` "
                "to own"
            )
        return codes, classes


def _task(name: str, classes: tuple[str, ...]) -> Task:
    if not classes:
        return Task(name=name, loss="mse", outputs=1, metrics=("rmse", "mae"))
    return Task(name=name, loss="cross_entropy", outputs=len(classes), metrics=("accuracy",), classes=classes)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _as_texts(column: pa.ChunkedArray) -> np.ndarray:
    return np.array([str(value) for value in column.to_pylist()])
