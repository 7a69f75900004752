"""Tables with several targets in each row as data sets of shared inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, nearest
from mtlscale.data.format.table_columns import TableColumn, category_names
from pipelines._formats.table_file import ROW
from pipelines._formats.text_files import Problems
from pipelines._steps.features import lists, standardised
from pipelines._tables.inputs import InputColumns, check_ids, encoded
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.suspicions import perfect_predictors
from pipelines._tables.targets import Target, is_present, labels_of, read_target
from pipelines.contract import PrepareContext, Prepared


@dataclass(frozen=True, kw_only=True)
class SharedTable:
    """The options of a table with several targets.

    Attributes:
        pipeline: The pipeline, for messages and the name of the suite.
        targets: Target column -> kind.
        separator: The text between tags.
        id: Column that names the row; "": the row number.
        weight: Column of sample weights; "": none.
        split: The rule that splits the rows.
        inputs: The input columns.
        standardise: Whether numbers of the inputs get mean 0 and variance 1.
        scale_targets: Whether targets of regression do.
        drop_constant: Whether constant inputs are left out; they are refused otherwise.
        grouped: Input column of categories that groups samples for metrics; "": none.
    """

    pipeline: str
    targets: Mapping[str, str]
    separator: str
    id: str
    weight: str
    split: RowSplit
    inputs: InputColumns
    standardise: bool
    scale_targets: bool
    drop_constant: bool
    grouped: str = ""

    def prepared(self, table: pa.Table, notes: dict[str, Any], problems: Problems, context: PrepareContext) -> Prepared:
        """Return the data set.

        Args:
            table: The rows, with their numbers in the column `ROW`.
            notes: Notes on the reading, extended here.
            problems: (row, problem) of rows that were left out, extended here.
            context: The settings of the preparation.
        """
        names = self.inputs.names(table, self._checked_roles(table))
        table, targets = self._usable(table, names, problems, context)
        labelled = np.any([target.present for target in targets], axis=0)
        if not labelled.all():
            notes["rows_without_label"] = int((~labelled).sum())
            table, targets = _taken(table, targets, labelled)

        ids = np.array(self._ids(table), dtype=object)
        classes = [target.codes for target in targets if target.kind == "class"]
        splits = self.split.rows(table, ids, classes)
        rows = _row_names(table)
        unseen: Problems = []
        labels = [pair for target in targets for pair in labels_of(self.pipeline, target, splits, rows, unseen)]
        notes |= context.settle([*problems, *unseen], "rows")
        if unseen:
            left_out = {row for row, _ in unseen}
            splits = {
                name: np.array([r for r in part if rows[r] not in left_out], int) for name, part in splits.items()
            }

        self._check_tasks([task for task, _ in labels])
        columns = self._columns(table, names, splits["train"], notes)
        return self._tables(table, columns, ids, labels, targets, splits, notes)

    def _checked_roles(self, table: pa.Table) -> list[str]:
        """Return the columns with a role other than input."""
        available = [name for name in table.column_names if name != ROW]
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
        for option, name in (("id", self.id), ("group", self.split.group)):
            if name:
                check_ids(self.pipeline, option, table, name)
        return [name for _, name in roles if name]

    def _usable(
        self, table: pa.Table, names: Sequence[str], problems: Problems, context: PrepareContext
    ) -> tuple[pa.Table, list[Target]]:
        """Return the rows without a bad cell, and their targets."""
        rows = _row_names(table)
        bad_cells: Problems = []
        for name in filter(None, (self.id, self.split.group, self.split.time, self.split.column, self.weight)):
            bad_cells += [
                (rows[row], f"has no value in {name}") for row in np.flatnonzero(~is_present(table[name])).tolist()
            ]
        if self.weight:
            bad_cells += self._bad_weights(table[self.weight], rows)
        table = self.inputs.parsed(table, names, rows, bad_cells)
        targets = [
            read_target(self.pipeline, table, column, kind, self.separator, rows, bad_cells)
            for column, kind in self.targets.items()
        ]

        problems += bad_cells
        context.settle(problems, "rows")
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

    def _columns(
        self, table: pa.Table, names: Sequence[str], train: np.ndarray, notes: dict[str, Any]
    ) -> list[TableColumn]:
        """Return the conversions of the inputs that vary over the training rows."""
        in_train = table.take(pa.array(train))
        constant = [name for name in names if pc.count_distinct(in_train[name], mode="all").as_py() < 2]
        if constant and not self.drop_constant:
            raise UserError(
                f"{self.pipeline}: column {constant[0]!r} is constant over the training rows; leave it out of "
                "`features` or set `constant` to drop"
            )

        varying = [name for name in names if name not in constant]
        if not varying:
            raise UserError(
                f"{self.pipeline}: every input is constant over the training rows; there is nothing to learn"
            )
        if constant:
            notes["constant"] = constant
        return self.inputs.fit(table, varying, train)

    def _tables(
        self,
        table: pa.Table,
        columns: Sequence[TableColumn],
        ids: np.ndarray,
        labels: Sequence[tuple[Task, np.ndarray]],
        targets: Sequence[Target],
        splits: Mapping[str, np.ndarray],
        notes: dict[str, Any],
    ) -> Prepared:
        inputs, encoding_notes = encoded(columns, table)
        notes |= encoding_notes
        notes["features"] = [column.name for column in columns]
        notes["columns"] = [column.as_json() for column in columns]
        raw = {column.name: table[column.name] for column in columns}
        if given_away := perfect_predictors(raw, targets, splits["train"]):
            notes["perfect_predictors"] = given_away

        counts = tuple(count for column in columns for count in column.counts)
        numbers = np.array(counts) == 0
        if self.standardise and numbers.any():
            inputs, notes["standardised"] = standardised(inputs, splits["train"], numbers)
        scaled, scaling = scaled_labels(labels, splits["train"]) if self.scale_targets else (labels, {})

        tables = {split: {"all": self._split(table, inputs, ids, scaled, splits[split])} for split in SPLITS}
        if repeated := repeated_inputs(tables):
            notes["test_inputs_in_train_or_val"] = {"all": repeated}
        group = self._group(columns)
        suite = TaskSuite(
            name=self.pipeline,
            tasks=tuple(replace(task, group=group) for task, _ in labels),
            inputs="shared",
            input_kind="vector",
            input_shape=(inputs.shape[1],),
            categories=counts if any(counts) else (),
            extras={"target_scaling": scaling} if scaling else {},
            weighted=bool(self.weight),
        )
        return Prepared(suite, tables, notes=notes)

    def _group(self, columns: Sequence[TableColumn]) -> int | None:
        """Return the position of the column that groups samples.

        Raises:
            UserError: If it is no input of categories.
        """
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

    def _split(
        self,
        table: pa.Table,
        inputs: np.ndarray,
        ids: np.ndarray,
        labels: Sequence[tuple[Task, np.ndarray]],
        rows: np.ndarray,
    ) -> pa.Table:
        columns = {"id": pa.array(ids[rows], pa.string()), "input": lists(inputs[rows])}
        for task, values in labels:
            columns[f"target.{task.name}"] = pa.array(values[rows].astype(np.int64 if task.classes else np.float32))
        if self.weight:
            columns["weight"] = pa.array(table[self.weight].to_numpy().astype(np.float32)[rows])
        return pa.table(columns)


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
    """Return the kept rows of a table and of its targets."""
    return table.filter(pa.array(kept)), [Target(t.column, t.kind, t.values[kept]) for t in targets]


def _row_names(table: pa.Table) -> list[str]:
    return [f"row {row + 1}" for row in table[ROW].to_pylist()]


def repeated_inputs(tables: Mapping[str, Mapping[str, pa.Table]]) -> int:
    """Return the number of test inputs that also occur in training or validation."""
    rows = {split: [row.tobytes() for row in _stored(streams["all"]["input"])] for split, streams in tables.items()}
    known_inputs = {*rows["train"], *rows["val"]}
    return sum(row in known_inputs for row in rows["test"])


def _stored(column: pa.ChunkedArray) -> np.ndarray:
    """Return inputs [N, D] as they are stored."""
    return column.combine_chunks().flatten().to_numpy().reshape(len(column), -1)
