"""Large CSV, TSV and Parquet tables in parts that are read one by one, with the types that the whole file has."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mtlscale.config import UserError
from mtlscale.data.tables.arff import is_arff
from mtlscale.data.tables.arrow_types import is_text, plain_table
from mtlscale.data.tables.csv_file import CsvRows, read_csv, words_in
from mtlscale.data.tables.csv_layout import CsvLayout, records
from mtlscale.data.tables.missing_words import ColumnWords
from mtlscale.data.tables.raw_files import LATIN_1, UTF_8, WINDOWS, decoded, encoding_note, is_packed
from mtlscale.data.tables.table_file import (
    ARROW,
    PARQUET,
    ROW,
    check_is_table,
    check_names,
    check_one_encoding,
    emptied,
    encodings_of,
    first_line,
    head_size,
    layout_of,
    words_as_values,
)
from mtlscale.data.tables.table_format import TableFormat

LARGE = 128 << 20  # bytes of a file, uncompressed, from which it is read in parts
PART_BYTES = 16 << 20
_BATCH_ROWS = 1 << 15
_SCANNED = 4 << 20  # bytes that are scanned for ends of rows at a time
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_START = 4096  # bytes that tell a format
_QUOTE, _LINE_FEED, _RETURN = b'"\n\r'


@dataclass(frozen=True)
class TablePart:
    """The part of a file: bytes of whole rows, or rows of a row group of Parquet.

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
        other: Number of the first line that is no UTF-8; 0: none.
        encoding: The encoding of the part.
    """

    count: int
    utf_8: int
    other: int
    encoding: str


@dataclass(frozen=True)
class RawPart:
    """The part as it was read.

    Attributes:
        table: Its rows.
        bad_rows: Position of a row that was left out -> its problem.
        first_bad: The text of the first of them.
        numbers: The position [N] of each row of the table among all rows of the part.
        rows: The number of all of them.
        lines: The encoding of a part of a text file whose types are not known yet.
        words: The words in its columns that may stand for empty cells, likewise.
        types: The type of each column as the file has it.
    """

    table: pa.Table
    bad_rows: dict[int, str]
    types: dict[str, pa.DataType]
    numbers: np.ndarray
    rows: int
    first_bad: str = ""
    lines: TextLines | None = None
    words: Mapping[str, ColumnWords] = field(default_factory=dict)


@dataclass(frozen=True)
class TableParts:
    """The file that is read in parts.

    Attributes:
        path: The file.
        parts: Its parts.
        columns: The names of its columns.
        form: How it is written.
        layout: The layout of a text file.
        types: The type of each column in the file; empty: each part of a text file has those that its cells suggest.
        values: Columns in which words such as NA are values.
        quoted_texts: Whether a text file has its texts in quotes.
        header_lines: Number of lines above the first row.
    """

    path: Path
    parts: tuple[TablePart, ...]
    columns: tuple[str, ...]
    form: TableFormat = field(default_factory=TableFormat)
    layout: CsvLayout | None = None
    types: tuple[pa.DataType, ...] = ()
    values: frozenset[str] = frozenset()
    quoted_texts: bool = False
    header_lines: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types, once they are plain."""
        raw = pa.schema(list(zip(self.columns, self.types, strict=True)))
        return plain_table(raw.empty_table()).schema

    @property
    def where(self) -> str:
        """The file as messages name it."""
        return f"table: {self.path.name}"

    def read(self, part: TablePart, columns: Sequence[str] | None = None) -> RawPart:
        """Return some columns of a part, or all, in plain types.

        Raises:
            UserError: The part cannot be read.
        """
        try:
            chosen = list(self.columns if columns is None else columns)
            if part.group < 0:
                raw = self._read_text(part, chosen)
            else:
                raw = raw_part(_read_row_group(self.path, part, chosen), {})
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{self.where} cannot be read: {first_line(error)}") from None
        return replace(raw, table=emptied(plain_table(raw.table), self.form.missing))

    def _read_text(self, part: TablePart, columns: list[str]) -> RawPart:
        assert self.layout is not None
        with self.path.open("rb") as file:
            file.seek(part.start)
            raw = file.read(part.stop - part.start)
        known = bool(self.types)
        lines = None if known else TextLines(raw.count(b"\n"), 0, 0, UTF_8)
        if not raw.isascii() or b"\0" in raw:
            text, encoding = decoded(self.where, raw)
            if not known:
                lines = TextLines(raw.count(b"\n"), *encodings_of(raw), encoding)
            raw = text.encode()

        names, separator, missing = self.columns, self.layout.separator, self.form.missing or ()
        types = dict(zip(self.columns, self.types, strict=True)) if known else None
        rows = read_csv(raw, names, separator, missing=missing, values=self.values, columns=columns, types=types)
        words: Mapping[str, ColumnWords] = {}
        if not known and self.form.missing is None:
            words = words_in(raw, names, separator, rows)
        return raw_part(rows.table, rows.bad_rows, first_bad=rows.first_bad, lines=lines, words=words)


def raw_part(table: pa.Table, bad_rows: dict[int, str], **more: Any) -> RawPart:
    """Return a part whose columns have the types of the file."""
    types = {entry.name: entry.type for entry in table.schema}
    numbers = np.array(CsvRows(table, bad_rows).numbers, np.int64)
    return RawPart(table, bad_rows, types, numbers, len(table) + len(bad_rows), **more)


@dataclass(frozen=True, eq=False)
class WholeTable:
    """The table in memory, which is the only part of itself.

    Attributes:
        table: Its rows, with their numbers in the column `ROW`.
        form: How it is written.
    """

    table: pa.Table
    form: TableFormat = field(default_factory=TableFormat)

    @property
    def parts(self) -> tuple[TablePart, ...]:
        """The table itself."""
        return (TablePart(0, len(self.table)),)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(name for name in self.table.column_names if name != ROW)

    @property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return self.table.drop_columns([ROW]).schema

    def read(self, part: TablePart, columns: Sequence[str] | None = None) -> RawPart:
        """Return some columns, or all."""
        numbers = self.table[ROW].to_numpy()
        table = self.table.select(list(self.columns if columns is None else columns))
        return RawPart(table, {}, {}, numbers, int(numbers[-1]) + 1 if len(numbers) else 0)


def is_large(path: Path) -> bool:
    """Return whether a file is read in parts: it is large, and of a kind that can be cut."""
    if path.is_dir():
        return False
    with path.open("rb") as file:
        start = file.read(_START)
    if not start.startswith(PARQUET):
        cannot_be_cut = start.startswith((ARROW, *_WIDE)) or is_packed(start) or is_arff(start.decode("latin-1"))
        return path.stat().st_size >= LARGE and not cannot_be_cut
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            metadata = file.metadata
            groups = range(metadata.num_row_groups)
            return sum(metadata.row_group(group).total_byte_size for group in groups) >= LARGE
    except (pa.ArrowException, OSError):
        return False  # the reader says what is wrong


def parts_of(path: Path, form: TableFormat | None = None) -> TableParts:
    """Return the parts of a file.

    Raises:
        UserError: The file cannot be read, has no row, or has two columns of one name.
    """
    form, where, size = form or TableFormat(), f"table: {path.name}", path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(PARQUET)) == PARQUET:
            return _parts_of_parquet(path, form)
        file.seek(0)
        first_line_bytes = len(file.readline())
        file.seek(0)
        head = file.read(head_size(first_line_bytes))
    check_is_table(where, head)
    layout = layout_of(where, path.name, head, form, whole=len(head) == size)
    edges = [layout.start]
    for ends in _row_ends(path, layout):
        while (place := np.searchsorted(ends, edges[-1] + PART_BYTES)) < len(ends):
            edges.append(int(ends[place]))
    edges += [size] if edges[-1] < size else []
    parts = tuple(TablePart(start, stop) for start, stop in pairwise(edges))
    header_lines = head[: layout.start].count(b"\n")
    return TableParts(
        path, parts, layout.names, form, layout, quoted_texts=layout.header_is_quoted, header_lines=header_lines
    )


def _row_ends(path: Path, layout: CsvLayout) -> Iterator[np.ndarray]:
    """Yield the bytes behind the rows of a text file, in order, those of some rows at a time."""
    # A line ends a row where an even number of quotes stands before it, provided that quotes stand at the edges of
    # fields alone. From where one stands elsewhere, rows are read one by one.
    at_edge = np.zeros(256, bool)
    at_edge[[ord(layout.separator), _LINE_FEED, _RETURN, _QUOTE]] = True
    start, last, inside, before = layout.start, layout.start, False, _LINE_FEED
    with path.open("rb") as file:
        file.seek(start)
        block, following = file.read(_SCANNED), file.read(_SCANNED)
        while block:
            codes = np.frombuffer(block, np.uint8)
            around = np.concatenate([[before], codes, [following[0] if following else _LINE_FEED]])
            quotes = np.flatnonzero(codes == _QUOTE)
            opening = (np.arange(len(quotes)) % 2 == 0) ^ inside
            if not at_edge[np.where(opening, around[quotes], around[quotes + 2])].all():
                yield from _row_ends_one_by_one(path, layout.separator, last)
                return

            ends = np.flatnonzero((codes == _LINE_FEED) | ((codes == _RETURN) & (around[2:] != _LINE_FEED)))
            of_rows = ends[(np.searchsorted(quotes, ends) % 2 == 0) ^ inside]
            yield start + 1 + of_rows
            last = start + 1 + int(of_rows[-1]) if len(of_rows) else last
            start, inside, before = start + len(block), (len(quotes) % 2 == 1) ^ inside, block[-1]
            block, following = following, file.read(_SCANNED)


def _row_ends_one_by_one(path: Path, separator: str, start: int) -> Iterator[np.ndarray]:
    with path.open("rb") as file:
        file.seek(start)
        for _, end, _ in records(io.TextIOWrapper(file, "latin-1", newline=""), separator):
            yield np.array([start + end])


def _parts_of_parquet(path: Path, form: TableFormat) -> TableParts:
    where = f"table: {path.name}"
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{where} cannot be read: {first_line(error)}") from None
    check_names(where, schema.names)

    parts = []
    for group in range(metadata.num_row_groups):
        rows, size = metadata.row_group(group).num_rows, metadata.row_group(group).total_byte_size
        step = max(1, rows * PART_BYTES // max(size, 1))
        parts += [TablePart(start, min(start + step, rows), group) for start in range(0, rows, step)]
    return TableParts(path, tuple(parts), tuple(schema.names), form, types=tuple(schema.types))


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


def sample_of(parts: TableParts, count: int) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows of so many parts of a file, at even distances and with their numbers in `ROW`, and notes."""
    chosen = [parts.parts[number * len(parts.parts) // count] for number in range(min(count, len(parts.parts)))]
    notes: dict[str, Any] = {}
    if not parts.types:
        raw_parts = [parts.read(part) for part in chosen]
        parts = typed(parts, raw_parts, notes)
    table = pa.concat_tables([parts.read(part).table for part in chosen])
    return table.append_column(ROW, pa.array(range(len(table)))), notes


def typed(parts: TableParts, raw_parts: Sequence[RawPart], notes: dict[str, Any]) -> TableParts:
    """Return a text file with the types of all its parts, and the columns in which words are values.

    Args:
        parts: The file.
        raw_parts: What its parts, or some of them, showed without types.
        notes: Notes on the set, extended by the words.
    """
    kinds = {name: common_type(raw.types[name] for raw in raw_parts) for name in parts.columns}
    texts = {name for name, kind in kinds.items() if is_text(kind)}
    words: dict[str, ColumnWords] = {}
    for raw in raw_parts:
        for name, column_words in raw.words.items():
            words[name] = words[name].merged(column_words) if name in words else column_words
    all_words = {
        name: replace(column_words, texts=name in texts or not column_words.values)
        for name, column_words in words.items()
    }

    values = words_as_values(all_words, parts.form, parts.quoted_texts, texts, notes)
    types = tuple(pa.string() if name in values else kinds[name] for name in parts.columns)
    return replace(parts, types=types, values=frozenset(values))


def check_encoding(where: str, name: str, lines: Sequence[TextLines], header: int) -> dict[str, Any]:
    """Return a note if a file is no UTF-8; `UserError` if some lines are, and others are not.

    Args:
        where: The file as messages name it.
        lines: The encodings of its parts.
        header: Number of lines before them.
    """
    first, utf_8, other = header, 0, 0
    for part in lines:
        utf_8 = utf_8 or (part.utf_8 and first + part.utf_8)
        other = other or (part.other and first + part.other)
        first += part.count
    check_one_encoding(where, utf_8, other)
    encodings = {part.encoding for part in lines} - {UTF_8}
    return encoding_note(name, max(encodings, key=[LATIN_1, WINDOWS].index)) if encodings else {}


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
