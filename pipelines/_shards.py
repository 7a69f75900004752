"""One shard of a set: computed, written, hashed and counted where this runs, a row group at a time."""

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

from mtlscale.data.columns import as_bytes
from mtlscale.data.manifest import FileEntry
from mtlscale.data.shared import sha256_of
from mtlscale.spec import Task, UserError
from pipelines._base import Compute, Deliver
from pipelines._checks import check_numbers


@dataclass(frozen=True)
class Shard:
    """Rows that one task computes and writes: of a stream, with the labels of these tasks. group: so many at a time."""

    split: str
    path: str  # below the folder of the set
    rows: pa.Table
    group: int
    tasks: tuple[Task, ...]


@dataclass
class Written:
    """What a task tells of its shard. entry: None where no row of it can be used."""

    shard: str
    split: str
    rows: int  # of the index
    entry: FileEntry | None = None
    samples: dict[str, int] = field(default_factory=dict)  # by task: with a label
    classes: dict[str, np.ndarray] = field(default_factory=dict)  # by task, where a sample has one label
    types: dict[str, str] = field(default_factory=dict)
    problems: list[tuple[str, str]] = field(default_factory=list)
    told: list[Any] = field(default_factory=list)
    error: tuple[Any, ...] | None = None  # of the file system
    wrong: str | None = None  # a mistake that ends the preparation


@dataclass(frozen=True)
class WriteShard:
    """The function of a task. name: of the set; strict: the first row with a problem ends it; deliver: where the file
    goes, if not into the folder."""

    name: str
    folder: str
    compute: Compute
    strict: bool
    deliver: Deliver | None = None

    def __call__(self, shard: Shard) -> Written:
        written = Written(shard.path, shard.split, len(shard.rows))
        try:
            with self._place(shard.path) as path:
                self._write(shard, path, written)
        except UserError as error:
            written.wrong = str(error)
        except OSError as error:  # told by number: not every error of a system survives the way back
            written.error = (error.errno, error.strerror or str(error), error.filename)
        return written

    @contextmanager
    def _place(self, name: str) -> Iterator[Path]:
        """A name nobody takes for done; whoever writes the same shard elsewhere has another."""
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

    def _write(self, shard: Shard, path: Path, written: Written) -> None:
        rows, writer = 0, None
        try:
            for start in range(0, max(1, len(shard.rows)), shard.group):  # a stream without rows has a file, too
                part = self.compute(shard.rows.slice(start, shard.group))
                written.problems += part.problems
                written.told.append(part.told)
                if self.strict and written.problems:
                    break
                if not len(part.table) and len(shard.rows):
                    continue
                check_numbers(f"{self.name}: {shard.split}", shard.tasks, part.table)
                _count(shard.tasks, part.table, written)
                table, written.types = _stored(part.table)
                writer = writer or _open(path, table.schema)
                writer.write_table(table, row_group_size=max(1, len(table)))
                rows += len(table)
        finally:
            if writer is not None:
                writer.close()
        if self.strict and written.problems:
            path.unlink(missing_ok=True)
        elif writer is not None:
            size = path.stat().st_size
            written.entry = FileEntry(path=shard.path, bytes=size, rows=rows, sha256=sha256_of(path))


def _count(tasks: tuple[Task, ...], table: pa.Table, written: Written) -> None:
    """Samples with a label, and of every class."""
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
                found = np.bincount(values[labelled], minlength=labels(task))
                written.classes[task.name] = written.classes.get(task.name, 0) + found
        written.samples[task.name] = written.samples.get(task.name, 0) + count


def labels(task: Task) -> int:
    return 2 if task.loss == "bce" else task.outputs


def _labelled(values: np.ndarray) -> np.ndarray:
    return ~np.isnan(values) if values.dtype.kind == "f" else values >= 0


def _stored(table: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """Arrays as bytes; and the type of every column's numbers."""
    from mtlscale.data.columns import ENCODED

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
    # Pictures as their files have them do not become smaller.
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
