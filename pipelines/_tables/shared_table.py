"""Tables with several targets in each row as data sets of shared inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, Task, TaskSuite, UserError, nearest
from mtlscale.data.format.graphs import KEY
from mtlscale.data.format.table_columns import TableColumn, category_names
from mtlscale.data.tables.notations import Question
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_file import ROW
from mtlscale.data.tables.table_format import TableFormat
from pipelines._steps.features import lists, standardised
from pipelines._tables.inputs import InputColumns, check_ids, encoded, infinite_cells
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.suspicions import perfect_predictors
from pipelines._tables.targets import Target, is_present, labels_of, read_target, target_uses
from pipelines._tables.text_columns import Use, read_texts, refuse_questions
from pipelines.contract import PrepareContext, Prepared


@dataclass(frozen=True)
class UsableRows:
    """The rows of a table that can be used.

    Attributes:
        table: The rows, at least their targets and columns with other roles.
        ids: The ids [N].
        targets: The target columns as they were read.
        labels: Each task and its labels [N].
        splits: Split -> its rows.
    """

    table: pa.Table
    ids: np.ndarray
    targets: Sequence[Target]
    labels: Sequence[tuple[Task, np.ndarray]]
    splits: Mapping[str, np.ndarray]


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
        drop_constant: Whether constant inputs are left out; they are refused otherwise.
        grouped: Input column of categories that groups samples for metrics; "": none.
        form: How the table is written.
    """

    pipeline: str
    targets: Mapping[str, str]
    separator: str
    id: str
    weight: str
    split: RowSplit
    inputs: InputColumns
    standardise: bool
    drop_constant: bool
    grouped: str = ""
    form: TableFormat = field(default_factory=TableFormat)

    def prepared(self, table: pa.Table, notes: dict[str, Any], problems: Problems, context: PrepareContext) -> Prepared:
        """Return the data set.

        Args:
            table: The rows, with their numbers in the column `ROW`.
            notes: Notes on the reading, extended here.
            problems: (row, problem) of rows that were left out, extended here.
        """
        names = self.inputs.names(table, self.roles(table.column_names), notes)
        bad_cells: Problems = []
        questions: dict[str, Question] = {}
        row_names = _row_names(table)
        table = read_texts(table, self.uses(table, names), self.form, row_names, bad_cells, questions)
        self.ask(questions, notes)
        for name in names:
            bad_cells += [(row_names[row], f"is infinite in {name}") for row in infinite_cells(table[name])]
        bad_cells += [(row_names[row], problem) for row, problem in self.inputs.bad_molecules(table).items()]
        rows = self.usable(table, bad_cells, problems, notes, context)
        return self._tables(rows, self._columns(rows.table, names, rows.splits["train"], notes), notes)

    def usable(
        self, table: pa.Table, bad_cells: Problems, problems: Problems, notes: dict[str, Any], context: PrepareContext
    ) -> UsableRows:
        """Return the rows with a label and without a bad cell, their labels and splits.

        Args:
            table: The rows: targets and columns with other roles; inputs are left as they are.
            bad_cells: (row, problem) of rows with bad inputs; extended here.
            problems: (row, problem) of rows that were left out before.
            notes: Notes on the set, extended here.
        """
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
        rows = _row_names(table)
        unseen: Problems = []
        labels = [pair for target in targets for pair in labels_of(self.pipeline, target, splits, rows, unseen)]
        notes |= context.settle([*problems, *bad_cells, *unseen], "rows")
        if unseen:
            left_out = {row for row, _ in unseen}
            splits = {
                name: np.array([r for r in part if rows[r] not in left_out], int) for name, part in splits.items()
            }

        self._check_tasks([task for task, _ in labels])
        return UsableRows(table, ids, targets, labels, splits)

    def uses(self, table: pa.Table, names: Sequence[str]) -> dict[str, Use]:
        """Return the columns whose texts may be numbers or dates -> what they are needed for."""
        uses = self.inputs.uses(table, names) | target_uses(table.schema, self.targets)
        uses |= {self.weight: "number"} if self.weight else {}
        return uses | ({self.split.time: "number or date"} if self.split.time else {})

    def ask(self, questions: Mapping[str, Question], notes: dict[str, Any]) -> None:
        """Raise `UserError` for a column that a setting would read, and note what others look like."""
        inputs = {name: question for name, question in questions.items() if name not in self.targets}
        refuse_questions(self.pipeline, inputs, "`categorical`, if it is none")
        refuse_questions(self.pipeline, questions, "`targets` as class, if it is one")
        if questions:
            notes["looks_like"] = {name: question.looks_like for name, question in questions.items()}

    def roles(self, columns: Sequence[str]) -> list[str]:
        """Return the columns with a role other than input; `UserError` if one is missing, or has two roles."""
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
        rows = _row_names(table)
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

    def _columns(
        self, table: pa.Table, names: Sequence[str], train: np.ndarray, notes: dict[str, Any]
    ) -> list[TableColumn]:
        """Return the conversions of the inputs that vary over the training rows."""
        in_train = table.take(pa.array(train))
        constant = [name for name in names if pc.count_distinct(in_train[name], mode="all").as_py() < 2]
        return self.inputs.fit(table, self.varying(names, constant, notes), train)

    def varying(self, names: Sequence[str], constant: Sequence[str], notes: dict[str, Any]) -> list[str]:
        """Return the inputs that are not constant over the training rows.

        Raises:
            UserError: If one is constant and may not be left out, or none varies.
        """
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
            notes["constant"] = list(constant)
        return varying

    def _tables(self, rows: UsableRows, columns: Sequence[TableColumn], notes: dict[str, Any]) -> Prepared:
        inputs, encoding_notes = encoded(columns, rows.table)
        notes |= encoding_notes
        notes["features"] = [column.name for column in columns]
        notes["columns"] = [column.as_json() for column in columns]
        train = rows.splits["train"]
        raw = {column.name: rows.table[column.name] for column in columns if column.kind != "smiles"}
        if given_away := perfect_predictors(raw, rows.targets, train):
            notes["perfect_predictors"] = given_away

        suite, labels = self.suite(rows, columns)
        numbers = np.array([count for column in columns for count in column.counts]) == 0
        if self.standardise and numbers.any():
            inputs, notes["standardised"] = standardised(inputs, train, numbers)

        label_columns = self.label_columns(rows, labels)
        tables = {
            split: {
                "all": pa.table(
                    {
                        "id": pa.array(rows.ids[rows.splits[split]], pa.string()),
                        "input": lists(inputs[rows.splits[split]]),
                        **{name: pa.array(values[rows.splits[split]]) for name, values in label_columns.items()},
                    }
                )
            }
            for split in SPLITS
        }
        if repeated := repeated_inputs(tables):
            notes["test_inputs_in_train_or_val"] = {"all": repeated}
        return Prepared(suite, tables, notes=notes)

    def suite(
        self, rows: UsableRows, columns: Sequence[TableColumn]
    ) -> tuple[TaskSuite, Sequence[tuple[Task, np.ndarray]]]:
        """Return the suite of inputs that are converted like this, and the labels [N] of each task, scaled."""
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

    def label_columns(self, rows: UsableRows, labels: Sequence[tuple[Task, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the columns [N] of labels and weights as they are stored."""
        columns = {
            f"target.{task.name}": values.astype(np.int64 if task.classes else np.float32) for task, values in labels
        }
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


def _row_names(table: pa.Table) -> list[str]:
    return [f"row {row + 1}" for row in table[ROW].to_pylist()]


def repeated_inputs(tables: Mapping[str, Mapping[str, pa.Table]]) -> int:
    """Return the number of test inputs that also occur in training or validation."""
    rows = {split: [row.tobytes() for row in _stored(streams["all"]["input"])] for split, streams in tables.items()}
    known_inputs = {*rows["train"], *rows["val"]}
    return sum(row in known_inputs for row in rows["test"])


def _stored(column: pa.ChunkedArray) -> np.ndarray:
    return column.combine_chunks().flatten().to_numpy().reshape(len(column), -1)
