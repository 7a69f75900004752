"""Reader for a user's table, told by its content: CSV, TSV, Parquet, Arrow or ARFF, packed or not."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from mtlscale.config import UserError
from mtlscale.data.tables.arff import is_arff, read_arff_table
from mtlscale.data.tables.arrow_types import is_text, plain_table
from mtlscale.data.tables.csv_file import read_csv, words_in
from mtlscale.data.tables.csv_layout import CsvLayout, csv_layout
from mtlscale.data.tables.missing_words import ColumnWords, values_among
from mtlscale.data.tables.notations import number_in
from mtlscale.data.tables.raw_files import (
    LATIN_1,
    PACKED,
    UTF_8,
    WINDOWS,
    Problems,
    decoded,
    encoding_note,
    is_packed,
    suffix_of,
    unpacked,
)
from mtlscale.data.tables.table_format import TableFormat

ROW = "\0row"
PARQUET, ARROW = b"PAR1", b"ARROW1"
_NO_TABLE = {
    b"PK\x03\x04": "is a spreadsheet or a zip archive, no CSV; save its sheet as CSV",
    b"\xd0\xcf\x11\xe0": "is a spreadsheet, no CSV; save its sheet as CSV",
    b"\x89HDF": "is an HDF5 file, no table; save it as Parquet or CSV",
    b"SQLite format 3": "is a database, no table; save a table of it as Parquet or CSV",
    b"\x80\x04": "is a pickle, which is not read; save it as Parquet or CSV",
    b"\x80\x05": "is a pickle, which is not read; save it as Parquet or CSV",
    b"RDX": "is a file of R, which is not read; save it by write.csv",
    b"\x28\xb5\x2f\xfd": "is packed with zstd; unpack it",
    b"%PDF": "is a PDF, no table; save it as CSV",
}
_NO_ROWS = (
    (re.compile(r'\s*(\{\s*"|\[\s*[\[{])'), "is JSON, no CSV; save it as Parquet or CSV"),
    (re.compile(r"\s*<(!doctype|html|\?xml)", re.IGNORECASE), "is a web page or XML, no CSV; fetch it again"),
)
_HEAD, _LINES = 1 << 20, 8  # bytes that show the layout, and lines of wide tables


@dataclass
class TableRead:
    """A table as it was read.

    Attributes:
        table: The rows, with their numbers as the column `ROW`.
        notes: Notes for the prepared set.
        problems: (row, problem) of rows that were left out.
        questions: What the user should say about the file before it is used.
        outputs: The columns that the file itself names as targets.
    """

    table: pa.Table
    notes: dict[str, Any] = field(default_factory=dict)
    problems: Problems = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)


def read_table(
    path: Path, form: TableFormat | None = None, *, where: str = "", texts: Collection[str] = ()
) -> TableRead:
    """Return the rows of a file in plain types (`plain_table`).

    Args:
        where: The file as messages name it; default: `table: ` and its name.
        texts: Columns of a text file that are read as texts, whatever their cells look like.

    Raises:
        UserError: The file cannot be read, has no row, or has two columns of one name.
    """
    form, where = form or TableFormat(), where or f"table: {path.name}"
    try:
        read = _read(path, form, where, texts)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{where} cannot be read: {first_line(error)}") from None

    if not len(read.table):
        raise UserError(f"{where} has no row")
    if read.problems:
        bad_rows = {row for row, _ in read.problems}
        count = len(read.table) + len(bad_rows)
        numbers = [row for row in range(count) if f"row {row + 1}" not in bad_rows]
    else:
        numbers = list(range(len(read.table)))
    read.table = emptied(plain_table(read.table), form.missing).append_column(ROW, pa.array(numbers))
    return read


def first_line(error: Exception) -> str:
    """Return the first line of an error's text."""
    return (str(error) or type(error).__name__).splitlines()[0]


def check_names(where: str, columns: Sequence[str]) -> None:
    """Raise `UserError` if two columns have the same name."""
    twice = next((column for column, count in Counter(columns).items() if count > 1), None)
    if twice is not None:
        raise UserError(f"{where} has two columns named {twice!r}; rename one")


def check_is_table(where: str, start: bytes) -> None:
    """Raise `UserError` if a file begins as one of another kind does."""
    for mark, problem in _NO_TABLE.items():
        if start.startswith(mark):
            raise UserError(f"{where} {problem}")


def check_one_encoding(where: str, utf_8: int, other: int) -> None:
    """Raise `UserError` if a line of a file is UTF-8 with letters beyond ASCII, and another is no UTF-8.

    Args:
        utf_8: The number of the one line; 0: there is none.
        other: The number of the other.
    """
    if utf_8 and other:
        raise UserError(f"{where} has two encodings: line {utf_8} is UTF-8, line {other} is not; save it as UTF-8")


def encodings_of(raw: bytes) -> tuple[int, int]:
    """Return the first line, from 1, with letters beyond ASCII in UTF-8, and the first that is no UTF-8; 0: none."""
    utf_8 = other = 0
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.isascii():
            continue
        try:
            line.decode("utf-8")
            utf_8 = utf_8 or number
        except UnicodeDecodeError:
            other = other or number
    return utf_8, other


def head_size(first_line: int) -> int:
    """Return the number of bytes that show the layout of a file whose first line has so many."""
    return max(_HEAD, _LINES * first_line)


def usual_separator(name: str) -> str:
    """Return the separator that a file's ending promises."""
    return "\t" if suffix_of(name) == ".tsv" else ","


def layout_of(where: str, name: str, head: bytes, form: TableFormat, *, whole: bool) -> CsvLayout:
    """Return the layout of a text file.

    Args:
        where: The file as messages name it.
        head: Its first bytes.
        whole: Whether they are all.
    """
    layout = csv_layout(where, head, usual_separator(name), header=form.header, skip_lines=form.skip_lines,
                        skip_rows=form.skip_rows, whole=whole)  # fmt: skip
    check_names(where, layout.names)
    return layout


def no_row(
    where: str, layout: CsvLayout, bad_rows: Mapping[int, str], first_bad: str, count: int | None = None
) -> UserError:
    """Return the error for a file whose rows all have another number of fields than its header.

    Args:
        where: The file as messages name it.
        bad_rows: Rows -> their problem.
        first_bad: The text of the first of them.
        count: Number of all of them; default: that of `bad_rows`.
    """
    fields = next(iter(bad_rows.values())).removeprefix("has ").partition(" fields")[0]
    names = ", ".join(layout.names)[:80]
    return UserError(
        f"{where}: {count or len(bad_rows)} rows have {fields} fields, the header has {len(layout.names)} ({names}); "
        f"the first row is {first_bad[:80]!r}: mend the header"
    )


def _read(path: Path, form: TableFormat, where: str, texts: Collection[str]) -> TableRead:
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(PARQUET):
        return _parquet(path, where)

    raw = unpacked(where, path)
    by_content = {} if is_packed(start) == path.name.lower().endswith(PACKED) else {"packed": [path.name]}
    if raw.startswith(PARQUET):
        return _parquet(io.BytesIO(raw), where)
    if raw.startswith(ARROW):
        table = pa.ipc.open_file(raw).read_all()
        check_names(where, table.column_names)
        return TableRead(table)

    check_is_table(where, raw)
    text, encoding = decoded(where, raw)
    for pattern, problem in _NO_ROWS:
        if pattern.match(text):
            raise UserError(f"{where} {problem}")
    if suffix_of(path.name) == ".arff" or is_arff(text):
        table, outputs = read_arff_table(where, text)
        read = TableRead(table, outputs=outputs)
    else:
        read = _csv(path, form, where, raw, text, encoding, texts)
        if suffix_of(path.name) == ".parquet":
            by_content["read_as_csv"] = [path.name]
    read.notes = by_content | encoding_note(path.name, encoding) | read.notes
    return read


def _parquet(file: Path | io.BytesIO, where: str) -> TableRead:
    with pyarrow.parquet.ParquetFile(file) as opened:
        check_names(where, opened.schema_arrow.names)
        return TableRead(opened.read())


def _csv(
    path: Path, form: TableFormat, where: str, raw: bytes, text: str, encoding: str, as_texts: Collection[str]
) -> TableRead:
    if encoding in (LATIN_1, WINDOWS):
        check_one_encoding(where, *encodings_of(raw))
    if encoding != UTF_8:
        raw = text.encode()
    size = head_size(raw.find(b"\n"))
    layout = layout_of(where, path.name, raw[:size], form, whole=len(raw) <= size)
    rest = raw[layout.start :]
    missing, types = form.missing or (), {name: pa.string() for name in as_texts if name in layout.names}
    rows = read_csv(rest, layout.names, layout.separator, missing=missing, types=types)
    if not len(rows.table) and rows.bad_rows:
        raise no_row(where, layout, rows.bad_rows, rows.first_bad)

    notes = dict(layout.notes)
    words = words_in(rest, layout.names, layout.separator, rows) if form.missing is None else {}
    texts = {name for name in layout.names if has_texts(rows.table[name])}
    values = words_as_values(words, form, layout.header_is_quoted, texts, notes)
    if values:
        rows = read_csv(rest, layout.names, layout.separator, missing=missing, types=types, values=values)
    problems = [(f"row {row + 1}", problem) for row, problem in rows.bad_rows.items()]
    return TableRead(rows.table, notes, problems, [f"{where}: {layout.question}"] if layout.question else [])


def words_as_values(
    words: Mapping[str, ColumnWords],
    form: TableFormat,
    quoted_texts: bool,
    texts: Collection[str],
    notes: dict[str, Any],
) -> set[str]:
    """Return the columns in which words such as NA are values.

    Args:
        form: How the table is written; if it lists the texts that are missing, all others are values.
        quoted_texts: Whether the file has its texts in quotes.
        notes: Notes on the set, extended by the words and what they were taken as.
    """
    if form.missing is not None:
        return set(texts)
    kept = values_among(words, quoted_texts=quoted_texts)
    taken = {name: dict(found.plain) for name, found in words.items()
             if found.texts and found.values and found.plain and name not in kept}  # fmt: skip
    notes |= {"words_as_values": {name: dict(counts) for name, counts in kept.items()}} if kept else {}
    notes |= {"words_as_empty": taken} if taken else {}
    return set(kept)


def has_texts(column: pa.ChunkedArray) -> bool:
    """Return whether a column's words may be values: it has texts, or nothing else."""
    return is_text(column.type) or pa.types.is_null(column.type)


def emptied(table: pa.Table, missing: Sequence[str] | None) -> pa.Table:
    """Return the table without the texts, and the numbers of columns of numbers, that are empty cells."""
    numbers = [number for text in missing or () if (number := number_in(text)) is not None]
    for position, entry in enumerate(table.schema if missing else ()):
        column, words = table.column(position), missing if is_text(entry.type) else numbers
        if words and (is_text(entry.type) or pa.types.is_integer(entry.type) or pa.types.is_floating(entry.type)):
            is_empty = pc.is_in(column, pa.array(words).cast(entry.type, safe=False))
            table = table.set_column(position, entry, pc.if_else(is_empty, pa.scalar(None, entry.type), column))
    return table
