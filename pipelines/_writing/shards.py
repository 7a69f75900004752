"""The writer of one shard of a set: computed, written, hashed and counted by one task, a row group at a time."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mtlscale.config import Task, UserError
from mtlscale.data.format.columns import as_bytes
from mtlscale.data.format.manifest import FileEntry
from mtlscale.data.remote import sha256_of
from pipelines._steps.checks import check_numbers
from pipelines.contract import Compute, Deliver


@dataclass(frozen=True)
class Shard:
    """The rows that one task computes and writes.

    Attributes:
        split: The split of the rows.
        path: The file, below the folder of the set.
        rows: The rows of the index, all of one stream.
        group: Number of rows that are computed at a time.
        tasks: The tasks whose labels the stream has.
    """

    split: str
    path: str
    rows: pa.Table
    group: int
    tasks: tuple[Task, ...]


@dataclass
class ShardResult:
    """The result of a task that wrote a shard.

    Attributes:
        shard: The path of the shard.
        split: The split of its rows.
        rows: Number of its rows in the index.
        entry: The written file; None if no row can be used.
        samples: Task -> number of samples with a label.
        classes: Task -> samples of each class, if a sample has one label.
        types: Column -> type of its numbers.
        problems: (name, problem) of rows that cannot be used.
        statistics: The statistics of the computed parts.
        error: errno, text and file name of an error of the file system.
        wrong: The message of a mistake that ends the preparation.
    """

    shard: str
    split: str
    rows: int
    entry: FileEntry | None = None
    samples: dict[str, int] = field(default_factory=dict)
    classes: dict[str, np.ndarray] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    statistics: list[Any] = field(default_factory=list)
    error: tuple[Any, ...] | None = None
    wrong: str | None = None


@dataclass(frozen=True)
class WriteShard:
    """The function of a task: compute a shard and write it.

    Attributes:
        name: The set, for messages.
        folder: The folder of the set.
        compute: The function from rows of the index to samples.
        strict: Whether the first row with a problem ends the task.
        deliver: Function that stores the file; None: it is written into the folder.
    """

    name: str
    folder: str
    compute: Compute
    strict: bool
    deliver: Deliver | None = None

    def __call__(self, shard: Shard) -> ShardResult:
        """Write a shard and return the result; errors are returned, not raised."""
        written = ShardResult(shard.path, shard.split, len(shard.rows))
        try:
            with self._temporary_path(shard.path) as path:
                self._write(shard, path, written)
        except UserError as error:
            written.wrong = str(error)
        except OSError as error:  # by number, because not every system error can be pickled back
            written.error = (error.errno, error.strerror or str(error), error.filename)
        return written

    @contextmanager
    def _temporary_path(self, name: str) -> Iterator[Path]:
        """Give a unique temporary path, which readers take for no shard, and move its file into place at the end."""
        if self.deliver is None:
            target = Path(self.folder, name)
            path = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            try:
                yield path
                if path.exists():
                    path.replace(target)
            finally:
                path.unlink(missing_ok=True)
            return

        with tempfile.TemporaryDirectory(prefix="mtlscale-shard-") as folder:
            path = Path(folder, "shard.parquet")
            yield path
            if path.exists():
                self.deliver(path, name)

    def _write(self, shard: Shard, path: Path, result: ShardResult) -> None:
        rows, writer = 0, None
        try:
            for start in range(0, max(1, len(shard.rows)), shard.group):  # a stream without rows has a file too
                part = self.compute(shard.rows.slice(start, shard.group))
                result.problems += part.problems
                result.statistics.append(part.told)
                if self.strict and result.problems:
                    break
                if not len(part.table) and len(shard.rows):
                    continue

                check_numbers(f"{self.name}: {shard.split}", shard.tasks, part.table)
                _count_labels(shard.tasks, part.table, result)

                table, result.types = _stored(part.table)
                writer = writer or _open(path, table.schema)
                writer.write_table(table, row_group_size=max(1, len(table)))
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()

        if self.strict and result.problems:
            path.unlink(missing_ok=True)
        elif writer is not None:
            size = path.stat().st_size
            result.entry = FileEntry(path=shard.path, bytes=size, rows=rows, sha256=sha256_of(path))


def _count_labels(tasks: tuple[Task, ...], table: pa.Table, result: ShardResult) -> None:
    """Count the samples with a label, and the samples of each class."""
    for task in tasks:
        column = table[f"target.{task.name}"].combine_chunks()
        if pa.types.is_fixed_size_list(column.type):
            values = column.flatten().to_numpy().reshape(len(column), column.type.list_size)
            count = int(_labelled(values).any(1).sum())
        else:
            values = column.to_numpy()
            labelled = _labelled(values)
            count = int(np.count_nonzero(labelled))
            if values.dtype.kind != "f":
                class_counts = np.bincount(values[labelled], minlength=labels(task))
                result.classes[task.name] = result.classes.get(task.name, 0) + class_counts

        result.samples[task.name] = result.samples.get(task.name, 0) + count


def labels(task: Task) -> int:
    """Return the number of labels that a task distinguishes: 2 for binary tasks, else its outputs."""
    return 2 if task.loss == "bce" else task.outputs


def _labelled(values: np.ndarray) -> np.ndarray:
    return ~np.isnan(values) if values.dtype.kind == "f" else values >= 0


def _stored(table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """Return the table with arrays as bytes, and the type of every column's numbers."""
    from mtlscale.data.format.columns import ENCODED

    columns, types = {}, {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        kind = column.type
        if pa.types.is_fixed_size_list(kind):
            types[name] = np.dtype(kind.value_type.to_pandas_dtype()).name
            column = as_bytes(column)
        elif pa.types.is_large_binary(kind):
            types[name] = ENCODED
        elif name != "id":
            types[name] = np.dtype(kind.to_pandas_dtype()).name
        columns[name] = column

    return pa.table(columns), types


def _open(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    # Encoded pictures do not become smaller.
    compression = {field.name: "none" if pa.types.is_large_binary(field.type) else "zstd" for field in schema}
    levels = {name: 1 for name, codec in compression.items() if codec == "zstd"}
    return pq.ParquetWriter(
        path,
        schema,
        compression=compression,
        compression_level=levels,
        use_dictionary=False,
        write_statistics=False,
    )
