"""What the columns of a table mean, as far as all kinds of tables have it in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.data.format.table_columns import TableColumn
from mtlscale.data.tables.notations import Question
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_file import ROW
from mtlscale.data.tables.table_format import TableFormat
from pipelines._tables.inputs import InputColumns
from pipelines._tables.targets import Target
from pipelines._tables.text_columns import Use
from pipelines.contract import PrepareContext

Labels = Sequence[tuple[Task, np.ndarray]]  # each task and the labels of the rows of its stream


@dataclass(frozen=True)
class UsableRows:
    """The rows of a table that can be used.

    Attributes:
        table: The rows, at least their targets and columns with other roles.
        ids: The ids [N].
        labels: Each task and the labels of the rows of its stream.
        splits: Split -> its rows.
        streams: Stream -> its rows.
        targets: The target columns as they were read, where a row has several.
    """

    table: pa.Table
    ids: np.ndarray
    labels: Labels
    splits: Mapping[str, np.ndarray]
    streams: Mapping[str, np.ndarray]
    targets: Sequence[Target] = ()


@dataclass(frozen=True, kw_only=True)
class TableRules:
    """Base of the options that say what columns mean.

    Attributes:
        pipeline: The pipeline, for messages and the name of the suite.
        id: Column that names the row; "": the row number.
        inputs: The input columns.
        standardise: Whether numbers of the inputs get mean 0 and variance 1.
        drop_constant: Whether constant inputs are left out; they are refused otherwise.
        form: How the table is written.
    """

    pipeline: str
    id: str
    inputs: InputColumns
    standardise: bool
    drop_constant: bool
    form: TableFormat = field(default_factory=TableFormat)

    def roles(self, columns: Sequence[str]) -> list[str]:
        """Return the columns with a role other than input; `UserError` if one is missing, or has two roles."""
        raise NotImplementedError

    def uses(self, table: pa.Table, names: Sequence[str]) -> dict[str, Use]:
        """Return the columns whose texts may be numbers or dates -> what they are needed for.

        Args:
            names: The input columns.
        """
        raise NotImplementedError

    def ask(self, questions: Mapping[str, Question], notes: dict[str, Any]) -> None:
        """Raise `UserError` for a column that a setting would read, and note what others look like."""
        raise NotImplementedError

    def check(self, schema: pa.Schema, names: Sequence[str], fractions: Mapping[str, bool]) -> None:
        """Raise `UserError` for an input that cannot be one, now that the types of all columns are known.

        Args:
            names: The input columns.
            fractions: Input of categories -> whether it has numbers that are not whole.
        """

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
        raise NotImplementedError

    def suite(self, rows: UsableRows, columns: Sequence[TableColumn]) -> tuple[TaskSuite, Labels]:
        """Return the suite of inputs that are converted like this, and the labels as they are stored."""
        raise NotImplementedError

    def note(self, columns: Sequence[TableColumn]) -> dict[str, Any]:
        """Return the notes on the conversion of the inputs, by which an exported model reads a table."""
        raise NotImplementedError

    def label_columns(self, rows: UsableRows, labels: Labels) -> dict[str, np.ndarray]:
        """Return the columns of labels and weights as they are stored, of the rows of their stream."""
        return {
            f"target.{task.name}": values.astype(np.int64 if task.classes else np.float32) for task, values in labels
        }

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


def row_names(table: pa.Table) -> list[str]:
    """Return the rows of a table as messages call them."""
    return [f"row {row + 1}" for row in table[ROW].to_pylist()]
