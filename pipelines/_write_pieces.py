"""Writing a set that arrives piece by piece: bounded memory, and bytes that do not depend on how it is cut."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mtlscale.spec import SPLITS, Task, TaskSuite, UserError
from pipelines._base import Pieces

ROW_GROUP_BYTES = 8 << 20  # of samples; the encoder takes several times that while it works
ROW_GROUP_ROWS = 8192


class _File:
    """One Parquet file, filled in groups of a fixed number of rows."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self.rows, self._last = path, 0, ""
        self._waiting: list[pa.Table] = []
        self._writer: pq.ParquetWriter | None = None
        self._group = 0

    def add(self, table: pa.Table) -> None:
        self._check_order(table)
        if self._writer is None:
            self._open(table.schema)
        self._waiting.append(table)
        self.rows += len(table)
        while sum(map(len, self._waiting)) >= self._group:
            self._write(self._group)

    def close(self) -> None:
        if self._writer is not None:
            if any(map(len, self._waiting)):
                self._write(self._group)
            self._writer.close()

    def discard(self) -> None:
        """Close after a failure; what was written is not used."""
        if self._writer is not None and self._writer.is_open:
            self._writer.close()

    def _open(self, schema: pa.Schema) -> None:
        arrays = [field for field in schema if pa.types.is_fixed_size_list(field.type)]
        row_bytes = sum(field.type.list_size * field.type.value_type.bit_width // 8 for field in arrays)
        self._group = max(1, min(ROW_GROUP_ROWS, ROW_GROUP_BYTES // max(row_bytes, 1)))
        # Parquet stores small integers in four bytes: split by byte they take no more room, or time, than one.
        encoding = {f"{field.name}.list.element": "BYTE_STREAM_SPLIT" for field in arrays}
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=False,
            write_statistics=False,
            column_encoding=encoding or None,
        )

    def _write(self, rows: int) -> None:
        waiting = pa.concat_tables(self._waiting)
        # In one chunk: how the encoder cuts its pages is not to depend on the pieces.
        assert self._writer is not None
        self._writer.write_table(waiting.slice(0, rows).combine_chunks(), row_group_size=rows)
        self._waiting = [waiting.slice(rows)] if len(waiting) > rows else []

    def _check_order(self, table: pa.Table) -> None:
        for id in table["id"].to_pylist():
            if id <= self._last:
                raise UserError(f"the source has two samples named {id}, or {self._path.name} is out of order")
            self._last = id


class _Counts:
    """Samples with a label, and samples of every class where a sample has one label."""

    def __init__(self, suite: TaskSuite) -> None:
        self.samples = {task.name: dict.fromkeys(SPLITS, 0) for task in suite.tasks}
        self._classes: dict[str, dict[str, np.ndarray]] = {}
        self._tasks = suite.tasks

    def add(self, split: str, table: pa.Table) -> None:
        for task in self._tasks:
            column = table[f"target.{task.name}"].combine_chunks()
            if pa.types.is_fixed_size_list(column.type):
                values = column.flatten().to_numpy().reshape(len(column), -1)
                labelled = values >= 0 if values.dtype.kind == "i" else ~np.isnan(values)
                self.samples[task.name][split] += int(labelled.any(1).sum())
                continue
            values = column.to_numpy()
            if values.dtype.kind == "f":
                self.samples[task.name][split] += int(np.count_nonzero(~np.isnan(values)))
                continue
            present = values[values >= 0]
            self.samples[task.name][split] += len(present)
            classes = self._classes.setdefault(task.name, {s: np.zeros(_labels(task), np.int64) for s in SPLITS})
            classes[split] += np.bincount(present, minlength=_labels(task))

    def classes(self) -> dict[str, dict[str, dict[str, int]]]:
        names = {task.name: task.classes or tuple(map(str, range(_labels(task)))) for task in self._tasks}
        return {
            task: {split: dict(zip(names[task], map(int, counts), strict=True)) for split, counts in splits.items()}
            for task, splits in self._classes.items()
        }


def _labels(task: Task) -> int:
    return 2 if task.loss == "bce" else task.outputs


def write_pieces(
    out: Path, name: str, suite: TaskSuite, stream: str, pieces: Pieces
) -> tuple[dict[str, int], dict[str, dict[str, int]], dict[str, dict[str, dict[str, int]]]]:
    """Write `<split>/<stream>.parquet` below `out`; (path -> rows, samples per task and split, and per class)."""
    files = {split: _File(out / split / f"{stream}.parquet") for split in SPLITS}
    counts, split_of = _Counts(suite), dict[str, str]()
    try:
        for split, table in pieces:
            for id in table["id"].to_pylist():
                if split_of.setdefault(id, split) != split:
                    raise ValueError(f"pipeline {name}: sample {id} is in {split_of[id]} and in {split}")
            files[split].add(table)
            counts.add(split, table)
        for file in files.values():
            file.close()
    finally:
        for file in files.values():
            file.discard()
    rows = {f"{split}/{stream}.parquet": file.rows for split, file in files.items()}
    used = Counter(split_of.values())
    for split in SPLITS:
        if not used[split]:
            raise UserError(f"{name}: no usable image is left in {split}; mend the source or use more of it")
    return rows, counts.samples, counts.classes()
