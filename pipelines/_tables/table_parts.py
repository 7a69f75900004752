"""Large CSV, TSV and Parquet tables in parts that are read one by one, with the types that the whole file has."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mtlscale.config import UserError
from pipelines._formats.table_file import (
    ROW,
    check_names,
    check_one_encoding,
    check_separator,
    convert_options,
    encodings_of,
    format_of,
)
from pipelines._formats.text_files import decoded

LARGE = 128 << 20  # bytes of a file, uncompressed, from which it is read in parts
PART_BYTES = 16 << 20
_BATCH_ROWS = 1 << 15
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class TablePart:
    """The part of a file: bytes of whole lines, or rows of a row group of Parquet.

    Attributes:
        start: The first byte or row.
        stop: The byte or row behind the last.
        group: The row group; -1 in a text file.
    """

    start: int
    stop: int
    group: int = -1


@dataclass(frozen=True)
class TextLines:
    """The encoding of a part of a text file.

    Attributes:
        count: Number of lines.
        utf_8: Number of the first line, from 1, with letters beyond ASCII in UTF-8; 0: none.
        latin_1: Number of the first line that is no UTF-8; 0: none.
    """

    count: int
    utf_8: int
    latin_1: int


@dataclass(frozen=True)
class RawPart:
    """The part as it was read.

    Attributes:
        table: Its rows.
        bad_rows: Position of a row that was left out -> its problem.
        lines: The encoding of a part of a text file whose types are not known yet.
    """

    table: pa.Table
    bad_rows: dict[int, str]
    lines: TextLines | None = None

    @property
    def numbers(self) -> list[int]:
        """The position of each row of the table among all rows of the part."""
        count = len(self.table) + len(self.bad_rows)
        return [row for row in range(count) if row not in self.bad_rows] if self.bad_rows else list(range(count))


@dataclass(frozen=True)
class TableParts:
    """The file that is read in parts.

    Attributes:
        path: The file.
        parts: Its parts.
        columns: The names of its columns.
        missing: Texts that count as empty cells.
        types: The type of each column; empty: each part of a text file has the types that its cells suggest.
        header: Whether the first line of a text file has the names.
    """

    path: Path
    parts: tuple[TablePart, ...]
    columns: tuple[str, ...]
    missing: tuple[str, ...] = ()
    types: tuple[pa.DataType, ...] = ()
    header: bool = True

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return pa.schema(list(zip(self.columns, self.types, strict=True)))

    def read(self, part: TablePart, columns: Sequence[str] | None = None) -> RawPart:
        """Return some columns of a part, or all.

        Raises:
            UserError: The part cannot be read.
        """
        try:
            chosen = list(self.columns if columns is None else columns)
            if part.group >= 0:
                return RawPart(_read_row_group(self.path, part, chosen), {})
            return self._read_text(part, chosen)
        except (pa.ArrowInvalid, OSError) as error:
            raise UserError(f"table: {self.path.name} cannot be read: {str(error).splitlines()[0]}") from None

    def _read_text(self, part: TablePart, columns: list[str]) -> RawPart:
        with self.path.open("rb") as file:
            file.seek(part.start)
            raw = file.read(part.stop - part.start)
        lines = None if self.types else TextLines(raw.count(b"\n"), *((0, 0) if raw.isascii() else encodings_of(raw)))
        if not raw.isascii() or b"\0" in raw:
            raw = decoded(f"table: {self.path.name}", raw)[0].encode()

        bad_rows: dict[int, str] = {}

        def keep_bad(row: Any) -> str:
            bad_rows[row.number - 1] = f"has {row.actual_columns} fields, not {row.expected_columns}"
            return "skip"

        convert = convert_options(self.missing)
        convert.include_columns = columns
        types = dict(zip(self.columns, self.types or [pa.null()] * len(self.columns), strict=True))
        if self.types:
            convert.column_types = {name: types[name] for name in columns}
        if not raw or raw.isspace():
            return RawPart(pa.schema([(name, types[name]) for name in columns]).empty_table(), {}, lines)
        table = pyarrow.csv.read_csv(
            io.BytesIO(raw),
            read_options=pyarrow.csv.ReadOptions(use_threads=False, column_names=list(self.columns)),
            parse_options=pyarrow.csv.ParseOptions(delimiter=_delimiter(self.path), invalid_row_handler=keep_bad),
            convert_options=convert,
        )
        return RawPart(table, bad_rows, lines)


def is_large(path: Path) -> bool:
    """Return whether a file is read in parts: it is large, and of a kind that can be cut."""
    if path.is_dir() or path.suffix not in (".csv", ".tsv", ".parquet"):
        return False
    if path.suffix != ".parquet" or path.stat().st_size >= LARGE:
        return path.stat().st_size >= LARGE
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            metadata = file.metadata
            groups = range(metadata.num_row_groups)
            return sum(metadata.row_group(group).total_byte_size for group in groups) >= LARGE
    except (pa.ArrowInvalid, OSError):
        return False  # the reader says what is wrong


def parts_of(path: Path, *, header: bool = True, missing: Sequence[str] = ()) -> TableParts:
    """Return the parts of a file.

    Args:
        path: The file.
        header: Whether the first line of a text file names the columns; otherwise they are called 1, 2, …
        missing: Texts that count as empty cells.

    Raises:
        UserError: The file cannot be read, has no row, or has two columns of one name.
    """
    if format_of(path) == ".parquet":
        return _parts_of_parquet(path)

    with path.open("rb") as file:
        first_line = file.readline()
        begin = file.tell() if header else len(_BOM) * first_line.startswith(_BOM)
        text, _ = decoded(f"table: {path.name}", first_line)
        check_separator(path.name, text, _delimiter(path))
        fields = next(csv.reader([text.rstrip("\r\n")], delimiter=_delimiter(path)), [])
        names = fields if header else [str(number + 1) for number in range(len(fields))]

        size, edges = path.stat().st_size, [begin]
        while edges[-1] < size:
            file.seek(edges[-1] + PART_BYTES)
            file.readline()
            edges.append(min(file.tell(), size))
    check_names(path.name, names)
    parts = tuple(TablePart(start, stop) for start, stop in pairwise(edges))
    return TableParts(path, parts, tuple(names), tuple(missing), header=header)


def _parts_of_parquet(path: Path) -> TableParts:
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"table: {path.name} cannot be read: {str(error).splitlines()[0]}") from None
    check_names(path.name, schema.names)

    parts = []
    for group in range(metadata.num_row_groups):
        rows, size = metadata.row_group(group).num_rows, metadata.row_group(group).total_byte_size
        step = max(1, rows * PART_BYTES // max(size, 1))
        parts += [TablePart(start, min(start + step, rows), group) for start in range(0, rows, step)]
    return TableParts(path, tuple(parts), tuple(schema.names), types=tuple(schema.types))


def common_type(types: Iterable[pa.DataType]) -> pa.DataType:
    """Return the type of a column of text whose parts have these types, as one reading of the whole file gives it."""
    different = {kind for kind in types if not pa.types.is_null(kind)}
    if len(different) < 2:
        return next(iter(different), pa.null())
    if different == {pa.int64(), pa.float64()}:
        return pa.float64()
    if all(pa.types.is_date32(kind) or (pa.types.is_timestamp(kind) and kind.tz is None) for kind in different):
        return pa.timestamp("ns") if pa.timestamp("ns") in different else pa.timestamp("s")
    return pa.string()


def sample_of(parts: TableParts, count: int) -> pa.Table:
    """Return the rows of so many parts of a file, at even distances, with their numbers in the column `ROW`."""
    chosen = [parts.parts[place * len(parts.parts) // count] for place in range(min(count, len(parts.parts)))]
    if not parts.types:
        tables = [parts.read(part).table for part in chosen]
        kinds = [common_type(table.schema.field(name).type for table in tables) for name in parts.columns]
        parts = replace(parts, types=tuple(kinds))
    table = pa.concat_tables([parts.read(part).table for part in chosen])
    return table.append_column(ROW, pa.array(range(len(table))))


def check_encoding(name: str, lines: Sequence[TextLines], header: int) -> dict[str, Any]:
    """Return a note if a file is no UTF-8; `UserError` if some lines are, and others are not.

    Args:
        name: The file's name.
        lines: The encodings of its parts.
        header: Number of lines before them.
    """
    first, utf_8, latin_1 = header, 0, 0
    for part in lines:
        utf_8 = utf_8 or (part.utf_8 and first + part.utf_8)
        latin_1 = latin_1 or (part.latin_1 and first + part.latin_1)
        first += part.count
    check_one_encoding(name, utf_8, latin_1)
    return {"read_as_latin_1": [name]} if latin_1 else {}


def _read_row_group(path: Path, part: TablePart, columns: list[str]) -> pa.Table:
    batches, seen = [], 0
    with pyarrow.parquet.ParquetFile(path) as file:
        schema = pa.schema([file.schema_arrow.field(name) for name in columns])
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[part.group], columns=columns):
            start, stop = max(part.start - seen, 0), min(part.stop - seen, len(batch))
            if start < stop:
                batches.append(batch.slice(start, stop - start).select(columns))
            seen += len(batch)
            if seen >= part.stop:
                break
    return pa.Table.from_batches(batches, schema)


def _delimiter(path: Path) -> str:
    return "\t" if format_of(path) == ".tsv" else ","
