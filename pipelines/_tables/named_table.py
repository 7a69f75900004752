"""Published tables with several targets in each row: the part that they have in common."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from mtlscale.config import UserError, knob
from mtlscale.data.tables.raw_files import Problems, decoded, unpacked
from mtlscale.data.tables.table_file import ROW, read_table
from pipelines._steps.features import TEST, VALIDATION
from pipelines._tables.inputs import InputColumns
from pipelines._tables.prepared_table import prepared_table
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.shared_table import SharedTable
from pipelines._tables.table_parts import WholeTable
from pipelines.contract import Pipeline, PrepareContext, Prepared

PART = "part"  # column that says of which official part a row is
METRICS = ("auroc", "cross_entropy", "ece")
GROUPED_METRICS = ("auroc", "gauroc", "cross_entropy", "ece")


class NamedTable(Pipeline):
    """Base of published tables, whose columns and targets are known.

    Their categories become codes, those of the training rows and one for all others; their numbers have mean 0 and
    variance 1 over training.
    """

    without_floors: ClassVar[tuple[str, ...]] = ()
    kinds: ClassVar[Mapping[str, str]]  # target column -> kind
    categorical: ClassVar[tuple[str, ...]] = ()  # whole numbers that are categories
    grouped: ClassVar[str] = ""  # column that groups samples for metrics
    smiles: ClassVar[str] = ""  # column of molecules, the only input then

    test: float = knob(
        TEST, low=0.0, high=1.0, open_low=True, open_high=True, help="share for test, where no part is given for it"
    )
    validation: float = knob(
        VALIDATION, low=0.0, high=1.0, open_low=True, open_high=True, help="share of the rest for validation"
    )
    split: int = knob(0, low=0, help="which random split")

    def locate(self, source: Path) -> Path:
        """Return the folder with the files."""
        if not source.exists():
            raise UserError(f"{self.name}: source {source} does not exist; pass --source with the folder of its files")
        return source if source.is_dir() else source.parent

    def table(self, source: Path, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
        """Return the rows as read, and notes on the reading.

        Args:
            source: What `locate` returned.
            problems: (row, problem) of rows that cannot be used, extended here.
        """
        raise NotImplementedError

    def chosen_kinds(self, table: pa.Table) -> Mapping[str, str]:
        """Return the targets of the table that the options choose, and their kinds."""
        return self.kinds

    def row_split(self, table: pa.Table) -> RowSplit:
        """Return the rule that splits the rows: by the official parts, or at random."""
        column = PART if PART in table.column_names else ""
        return RowSplit(pipeline=self.name, test=self.test, validation=self.validation, seed=self.split, column=column)

    def prepare(self, source: Path | None, context: PrepareContext) -> Prepared:
        assert source is not None
        problems: Problems = []
        table, notes = self.table(source, problems)
        rows = pa.array(range(len(table)), pa.int64())
        categorical = tuple(name for name in self.categorical if name in table.column_names)
        shared = SharedTable(
            pipeline=self.name,
            targets=self.chosen_kinds(table),
            separator="auto",
            id="",
            weight="",
            split=self.row_split(table),
            inputs=InputColumns(
                pipeline=self.name,
                features=(),
                categorical=categorical,
                most_categories=10_000,
                buckets=10_000,
                smiles=self.smiles,
            ),
            standardise=True,
            drop_constant=True,
            grouped=self.grouped,
        )
        whole = WholeTable(table.append_column(ROW, rows))
        prepared = prepared_table(shared, whole, context, notes, problems)
        metrics = GROUPED_METRICS if self.grouped else METRICS
        tasks = (replace(task, metrics=metrics) if task.loss == "bce" else task for task in prepared.suite.tasks)
        prepared.suite = replace(prepared.suite, tasks=tuple(tasks))
        return prepared


def parts_of(name: str, folder: Path, files: Mapping[str, str]) -> dict[str, Path]:
    """Return split -> its file, as it is or packed with gzip, of those that are there.

    Args:
        name: The pipeline, for messages.
        folder: The folder with the files.
        files: Split -> file name.

    Raises:
        UserError: If none is there.
    """
    present = {
        split: path
        for split, file in files.items()
        for path in (folder / file, folder / f"{file}.gz")
        if path.is_file()
    }
    if not present:
        expected = ", ".join(f"{file} or {file}.gz" for file in files.values())
        raise UserError(f"{name}: {folder} has none of {expected}")
    return present


def whole_file(name: str, source: Path, file: str, problems: Problems) -> tuple[pa.Table, dict[str, Any]]:
    """Return all columns of a table file of a set, plain or packed with gzip, and what is to be noted of it.

    Args:
        problems: (row, problem) of rows that cannot be read, which are left out; extended here.
    """
    (path,) = parts_of(name, source, {"": file}).values()
    read = read_table(path, where=f"{name}: {path.name}")
    problems += read.problems
    return read.table.drop_columns([ROW]), {**read.notes, "parts": [path.name]}


def read_columns(name: str, path: Path, columns: Sequence[str], problems: Problems, separator: str = ",") -> pa.Table:
    """Return the rows of a text file without names, or with a first line of names, which is skipped.

    Empty lines and those that begin with a bar are no rows. Spaces around values are left out.

    Args:
        name: The pipeline, for messages.
        path: The file, as it is or packed with gzip.
        problems: (row, problem) of rows with too many or too few fields, which are left out; extended here.
        separator: The text between fields.
    """
    text, _ = decoded(f"{name}: {path.name}", unpacked(f"{name}: {path.name}", path))
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("|")]
    if lines and not lines[0].split(separator)[0].strip().lstrip("-").isdigit():
        lines = lines[1:]
    if not lines:
        raise UserError(f"{name}: {path.name} has no row")

    def keep_bad(row: Any) -> str:
        problems.append(
            (f"{path.name}, row {row.number}", f"has {row.actual_columns} fields, not {row.expected_columns}")
        )
        return "skip"

    parse = pyarrow.csv.ParseOptions(delimiter=separator, quote_char=False, invalid_row_handler=keep_bad)
    read = pyarrow.csv.ReadOptions(column_names=list(columns), use_threads=False)
    try:
        table = pyarrow.csv.read_csv(io.BytesIO("\n".join(lines).encode()), read_options=read, parse_options=parse)
    except pa.ArrowInvalid as error:
        raise UserError(f"{name}: {path.name} cannot be read: {str(error).splitlines()[0]}") from None

    for position, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(position, field.name, pc.utf8_trim_whitespace(table[field.name]))
    return table


def check_texts(name: str, table: pa.Table, columns: Sequence[str]) -> None:
    """Raise `UserError` if a column that answers are read from has no texts, as in a file of another order."""
    for column in columns:
        if not pa.types.is_string(table[column].type) and not pa.types.is_large_string(table[column].type):
            raise UserError(
                f"{name}: column {column} has {table[column].type}, not texts; are the columns of the file in the "
                "published order?"
            )


def yes_or_no(condition: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of conditions as one of the classes no and yes."""
    return pc.if_else(condition, "yes", "no")
