"""Conversion of predictions into rows, and the files that they are written to."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from mtlscale.config import UserError

if TYPE_CHECKING:
    import pyarrow as pa

STDOUT = "-"
SUFFIXES = (".parquet", ".csv", ".jsonl")


class PredictionWriter(Protocol):
    """Destination of tables with the same columns, written one after the other."""

    def write(self, table: pa.Table) -> None: ...


@contextlib.contextmanager
def sink(output: str) -> Iterator[PredictionWriter]:
    """Open a file, in the format of its ending, that appears complete or not at all.

    `-` is standard output, in lines of JSON.
    """
    if output == STDOUT:
        yield _JsonLinesWriter(sys.stdout)
        return

    path = Path(output).absolute()
    if path.suffix not in SUFFIXES:
        raise UserError(f"--output {output}: end its name with {', '.join(SUFFIXES)}, or write - for standard output")
    if path.is_dir():
        raise UserError(f"--output {output} is a folder; name a file")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise UserError(f"--output {output} cannot be written: {error.strerror}; name another file") from None

    try:
        with os.fdopen(handle, "wb") as file, contextlib.closing(_writer(path.suffix, file)) as writer:
            yield writer
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _writer(suffix: str, file: IO[bytes]) -> _JsonLinesWriter | _Arrow:
    if suffix == ".jsonl":
        return _JsonLinesWriter(io.TextIOWrapper(file, encoding="utf-8", write_through=True))
    return _Parquet(file) if suffix == ".parquet" else _Csv(file)


class _JsonLinesWriter:
    """Writer of one JSON object per line."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, table: pa.Table) -> None:
        self._file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in table.to_pylist())

    def close(self) -> None:
        self._file.flush()


class _Arrow:
    """Base of Arrow's file writers, which start with the first table."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._writer: Any = None

    def write(self, table: pa.Table) -> None:
        if self._writer is None:
            self._writer = self._open_writer(table)
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def _open_writer(self, table: pa.Table) -> Any:
        raise NotImplementedError


class _Parquet(_Arrow):
    def _open_writer(self, table: pa.Table) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetWriter(self._file, table.schema)


class _Csv(_Arrow):
    def _open_writer(self, table: pa.Table) -> Any:
        import pyarrow as pa
        import pyarrow.csv as csv

        nested: Sequence[str] = [field.name for field in table.schema if pa.types.is_nested(field.type)]
        if nested:
            raise UserError(f"--output: {nested[0]} has several numbers to a row, which .csv cannot hold; use .parquet")
        writer = csv.CSVWriter(self._file, table.schema)
        return _WithSchema(writer, table.schema)


class _WithSchema:
    """Writer of CSV that also has its schema, which Arrow's does not tell."""

    def __init__(self, writer: Any, schema: Any) -> None:
        self.schema, self.write_table, self.close = schema, writer.write_table, writer.close
