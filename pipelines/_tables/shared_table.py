"""Tables with several targets in each row as data sets of shared inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.config import Task, TaskSuite, UserError, nearest
from mtlscale.data.format.graphs import KEY
from mtlscale.data.format.table_columns import TableColumn, category_names
from mtlscale.data.tables.notations import Question
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_file import ROW
from pipelines._tables.inputs import check_ids, is_present
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.table_rules import Labels, TableRules, UsableRows, row_names
from pipelines._tables.targets import Target, labels_of, read_target, target_uses
from pipelines._tables.text_columns import Use, refuse_questions
from pipelines.contract import PrepareContext


@dataclass(frozen=True, kw_only=True)
class SharedTable(TableRules):
    """The options of a table with several targets in each row.

    Attributes:
        targets: Target column -> kind.
        separator: The text between tags.
        weight: Column of sample weights; "": none.
        split: The rule that splits the rows.
        grouped: Input column of categories that groups samples for metrics; "": none.
    """

    targets: Mapping[str, str]
    separator: str
    weight: str
    split: RowSplit
    grouped: str = ""

    def usable(
        self, table: pa.Table, bad_cells: Problems, problems: Problems, notes: dict[str, Any], context: PrepareContext
    ) -> UsableRows:
        for option, name in (("id", self.id), ("group", self.split.group)):
            if name:
                check_ids(self.pipeline, option, table, name)
        table, targets = self._without_bad_cells(table, bad_cells, problems, context)
        labelled = np.any([target.present for target in targets], axis=0)
        if not labelled.all():
            notes["rows_without_label"] = int((~labelled).sum())
            table, targets = _taken(table, targets, labelled)

        ids = np.array(self._ids(table), dtype=object)
        classes = [target.codes for target in targets if target.kind == "class"]
        splits = self.split.rows(table, ids, classes)
        rows = row_names(table)
        unseen: Problems = []
        labels = [pair for target in targets for pair in labels_of(self.pipeline, target, splits, rows, unseen)]
        notes |= context.settle([*problems, *bad_cells, *unseen], "rows")
        if unseen:
            left_out = {row for row, _ in unseen}
            splits = {
                name: np.array([r for r in part if rows[r] not in left_out], int) for name, part in splits.items()
            }

        self._check_tasks([task for task, _ in labels])
        return UsableRows(table, ids, labels, splits, {"all": np.arange(len(table))}, targets)

    def uses(self, table: pa.Table, names: Sequence[str]) -> dict[str, Use]:
        uses = self.inputs.uses(table, names) | target_uses(table.schema, self.targets)
        uses |= {self.weight: "number"} if self.weight else {}
        return uses | ({self.split.time: "number or date"} if self.split.time else {})

    def ask(self, questions: Mapping[str, Question], notes: dict[str, Any]) -> None:
        inputs = {name: question for name, question in questions.items() if name not in self.targets}
        refuse_questions(self.pipeline, inputs, "`categorical`, if it is none")
        refuse_questions(self.pipeline, questions, "`targets` as class, if it is one")
        if questions:
            notes["looks_like"] = {name: question.looks_like for name, question in questions.items()}

    def roles(self, columns: Sequence[str]) -> list[str]:
        available = [name for name in columns if name != ROW]
        if not self.targets:
            raise UserError(f"{self.pipeline}: `targets` is empty; name a column and its kind")
        roles = [("targets", name) for name in self.targets]
        roles += [("id", self.id), ("weight", self.weight), ("group", self.split.group), ("time", self.split.time),
                  ("split_column", self.split.column)]  # fmt: skip
        for option, name in roles:
            if name and name not in available:
                raise UserError(
                    f"{self.pipeline}: there is no column {name!r}; {nearest(name, available)}; correct `{option}`"
                )

        for option, name in roles[len(self.targets) :]:
            if name and name in self.targets:
                raise UserError(f"{self.pipeline}: column {name!r} is a target and `{option}`; drop one role")
        for name in (*self.inputs.features, *self.inputs.categorical):
            if name in self.targets:
                raise UserError(f"{self.pipeline}: column {name!r} is a target and an input; drop one role")
        return [name for _, name in roles if name]

    def _without_bad_cells(
        self, table: pa.Table, bad_cells: Problems, problems: Problems, context: PrepareContext
    ) -> tuple[pa.Table, list[Target]]:
        """Return the rows without a bad cell, and their targets; `bad_cells` are extended."""
        rows = row_names(table)
        for name in filter(None, (self.id, self.split.group, self.split.time, self.split.column, self.weight)):
            bad_cells += [
                (rows[row], f"has no value in {name}") for row in np.flatnonzero(~is_present(table[name])).tolist()
            ]
        if self.weight:
            bad_cells += self._bad_weights(table[self.weight], rows)
        targets = [
            read_target(self.pipeline, table, column, kind, self.separator, rows, bad_cells)
            for column, kind in self.targets.items()
        ]

        context.settle([*problems, *bad_cells], "rows")
        bad = {row for row, _ in bad_cells}
        good = np.array([row not in bad for row in rows])
        if not good.any():
            raise UserError(f"{self.pipeline}: every row has a bad cell; the first: {' '.join(bad_cells[0])}")
        return (table, targets) if good.all() else _taken(table, targets, good)

    def _bad_weights(self, column: pa.ChunkedArray, rows: Sequence[str]) -> Problems:
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise UserError(f"{self.pipeline}: column {self.weight!r} of `weight` holds {column.type}, no numbers")
        weights = column.to_numpy().astype(float)
        bad = np.flatnonzero(np.isinf(weights) | (weights < 0)).tolist()
        return [(rows[row], f"has the weight {weights[row]:g}; weights are at least 0") for row in bad]

    def _ids(self, table: pa.Table) -> list[str]:
        if not self.id:
            return [f"{row:09d}" for row in table[ROW].to_pylist()]

        ids = category_names(table[self.id]).tolist()
        row_of: dict[str, int] = {}
        for row, id in zip(table[ROW].to_pylist(), ids, strict=True):
            if row_of.setdefault(id, row) != row:
                raise UserError(
                    f"{self.pipeline}: {id} occurs in row {row_of[id] + 1} and row {row + 1} of the id column "
                    f"{self.id!r}; it must name one row"
                )
        return ids

    def _check_tasks(self, tasks: Sequence[Task]) -> None:
        names = [task.name for task in tasks]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"{self.pipeline}: two targets are both called {twice}; rename a column")

    def note(self, columns: Sequence[TableColumn]) -> dict[str, Any]:
        return {"features": [column.name for column in columns], "columns": [column.as_json() for column in columns]}

    def suite(self, rows: UsableRows, columns: Sequence[TableColumn]) -> tuple[TaskSuite, Labels]:
        labels, scaling = scaled_labels(rows.labels, rows.splits["train"])
        counts = tuple(count for column in columns for count in column.counts)
        group = self._group(columns)
        extras: dict[str, Any] = {"target_scaling": scaling} if scaling else {}
        if self.inputs.smiles:
            extras[KEY] = columns[0].graph.as_json()
        suite = TaskSuite(
            name=self.pipeline,
            tasks=tuple(replace(task, group=group) for task, _ in labels),
            inputs="shared",
            input_kind="vector",
            input_shape=(len(counts),),
            categories=counts if any(counts) else (),
            extras=extras,
            weighted=bool(self.weight),
        )
        return suite, labels

    def label_columns(self, rows: UsableRows, labels: Labels) -> dict[str, np.ndarray]:
        columns = super().label_columns(rows, labels)
        if self.weight:
            columns["weight"] = rows.table[self.weight].to_numpy().astype(np.float32)
        return columns

    def _group(self, columns: Sequence[TableColumn]) -> int | None:
        """Return the position of the column that groups samples, which must be an input of categories."""
        position = 0
        for column in columns if self.grouped else ():
            if column.name == self.grouped:
                if column.kind == "category":
                    return position
                problem = "more values than `most_categories`" if column.kind == "hash" else "no categories"
                raise UserError(f"{self.pipeline}: column {self.grouped!r} of `grouped` has {problem}; name it in "
                                "`categorical`, or raise `most_categories`")  # fmt: skip
            position += len(column.parts)

        if self.grouped:
            hint = nearest(self.grouped, [column.name for column in columns])
            raise UserError(f"{self.pipeline}: column {self.grouped!r} of `grouped` is no input; {hint}")
        return None


def scaled_labels(
    labels: Sequence[tuple[Task, np.ndarray]], train: np.ndarray
) -> tuple[list[tuple[Task, np.ndarray]], dict[str, list[float]]]:
    """Return the labels, numbers with mean 0 and variance 1 over train, and (mean, deviation) of those tasks."""
    scaled, scaling = [], {}
    for task, values in labels:
        if not task.classes:
            mean, deviation = float(np.nanmean(values[train])), float(np.nanstd(values[train]))
            scaling[task.name] = [mean, deviation]
            values = (values - mean) / deviation
        scaled.append((task, values))
    return scaled, scaling


def _taken(table: pa.Table, targets: Sequence[Target], kept: np.ndarray) -> tuple[pa.Table, list[Target]]:
    return table.filter(pa.array(kept)), [Target(t.column, t.kind, t.values[kept]) for t in targets]
