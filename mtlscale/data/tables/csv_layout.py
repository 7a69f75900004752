"""The layout of a text file with columns: separator, names, first row, and lines that are no rows."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from mtlscale.config import UserError
from mtlscale.data.tables.notations import is_number
from mtlscale.data.tables.raw_files import decoded

SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
BOM = b"\xef\xbb\xbf"
_SEPARATOR_LINE = re.compile(rb'"?sep=(.)"?[ \t]*(?:\r\n|\n|\r)', re.IGNORECASE)  # of spreadsheets
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_LONGEST_FIELD = 1 << 30  # characters; csv's own limit is shorter than some documents
_LOOKED_AT = 100  # rows
_FEWEST_ROWS = 5  # below a line of units
_MOST_TITLE_LINES = 20
_UNNAMED = "Unnamed: {}"  # as pandas calls them


@dataclass(frozen=True)
class CsvLayout:
    """The layout of a file.

    Attributes:
        separator: The character between two fields.
        names: The names of the columns; an empty one belongs to the names of rows.
        start: The first byte of the first row.
        notes: Notes for the prepared set.
        question: What is to be asked about the first lines; "": nothing.
        header_is_quoted: Whether all names stand in quotes: the writer then has all texts in quotes.
    """

    separator: str
    names: tuple[str, ...]
    start: int
    notes: dict[str, Any] = field(default_factory=dict, hash=False)
    question: str = ""
    header_is_quoted: bool = False


@dataclass(frozen=True)
class _Record:
    fields: list[str]
    end: int  # the byte behind it


class BadQuotes(Exception):
    """Error for a quote that stands where none may, with its line."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def records(lines: Iterable[str], separator: str, *, strict: bool = False) -> Iterator[tuple[list[str], int, int]]:
    """Yield (fields, character behind it, number of its last line) of each record; line ends within quotes stay.

    Args:
        lines: The lines, with their ends.
        separator: The character between two fields.
        strict: Whether quotes stand at the edges of fields alone.

    Raises:
        BadQuotes: A quote stands where none may, if `strict`.
    """
    offset = 0

    def counted() -> Iterator[str]:
        nonlocal offset
        for line in lines:
            offset += len(line)
            yield line

    previous_limit = csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(counted(), delimiter=separator, strict=strict)
    try:
        for fields in reader:
            yield fields, offset, reader.line_num
    except csv.Error as error:
        raise BadQuotes(reader.line_num, str(error)) from None
    finally:
        csv.field_size_limit(previous_limit)


def csv_layout(
    where: str,
    head: bytes,
    separator: str,
    *,
    header: bool = True,
    skip_lines: int | None = None,
    skip_rows: int | None = None,
    whole: bool = True,
) -> CsvLayout:
    """Return the layout that the first lines of a file show.

    Args:
        where: The file as messages name it.
        head: Its first bytes, or all, in UTF-8 or an encoding of eight bits.
        separator: The usual separator of files with its ending.
        header: Whether the first line has the names; otherwise columns are called 1, 2, …
        skip_lines: Number of lines above the header; None: a title is asked about.
        skip_rows: Number of rows below the header that are none, such as units; None: units are asked about.
        whole: Whether `head` is the whole file; otherwise its last record is cut.

    Raises:
        UserError: There is no line, or a title above the header.
    """
    usual = separator
    separator, start = beginning(head, usual, whole=whole, skip_lines=skip_lines or 0)
    records = _records(head[start:], separator, whole)
    if not records:
        raise UserError(f"{where} is empty; it has no row")

    if header and skip_lines is None:
        _refuse_title(where, records)
    names = [decoded(where, name.encode("latin-1"))[0] for name in records[0].fields]
    rows = records[1:] if header else records
    notes: dict[str, Any] = {}
    if separator != usual:
        notes["separated_by"] = SEPARATORS.get(separator, separator)
    if not header:
        names = [str(number + 1) for number in range(len(records[0].fields))]
    else:
        names = _names_of_all(names, [row.fields for row in rows], notes)
    first = records[0].end if header else 0
    if skip_rows and rows:
        first = rows[min(skip_rows, len(rows)) - 1].end
    question = _units(rows) if header and skip_rows is None else ""
    line = head[start : start + records[0].end].strip()
    quoted = header and line.startswith(b'"') and line.endswith(b'"')
    return CsvLayout(separator, tuple(names), start + first, notes, question, quoted)


def beginning(head: bytes, usual: str, *, whole: bool = True, skip_lines: int = 0) -> tuple[str, int]:
    """Return the separator of a file and the first byte of its header, behind the mark and the lines above it.

    Args:
        head: Its first bytes, or all.
        usual: The usual separator of files with its ending.
        whole: Whether `head` is the whole file.
        skip_lines: Number of lines above the header.
    """
    start = len(BOM) if head.startswith(BOM) else 0
    separator_line = _SEPARATOR_LINE.match(head, start)
    start = separator_line.end() if separator_line is not None else start
    for _ in range(skip_lines):
        line = _LINE.match(head, start)
        start = line.end() if line is not None else start
    separator = separator_line[1].decode("latin-1") if separator_line else _separator(head[start:], usual, whole)
    return separator, start


def _records(head: bytes, separator: str, whole: bool) -> list[_Record]:
    """Return the first records that are not blank; Latin-1 makes a character of every byte."""
    found = []
    text = head.decode("latin-1")
    for fields, end, _ in islice(records(io.StringIO(text, newline=""), separator), 2 * _LOOKED_AT):
        if any(fields) or len(fields) > 1:
            found.append(_Record(fields, end))
        if len(found) > _LOOKED_AT:
            return found
    if found and not whole and found[-1].end == len(text):
        found.pop()
    return found


def _separator(head: bytes, usual: str, whole: bool) -> str:
    """Return the usual separator, or the one that divides the first lines evenly where the usual one does not."""
    widths = {mark: [len(record.fields) for record in _records(head, mark, whole)] for mark in SEPARATORS}
    if not widths[usual] or widths[usual][0] > 1:
        return usual
    even = {mark: counts[0] for mark, counts in widths.items() if counts and counts[0] > 1 and len(set(counts)) == 1}
    first = {mark: counts[0] for mark, counts in widths.items() if counts and counts[0] > 1}
    candidates = even or first
    return max(candidates, key=candidates.__getitem__) if candidates else usual


def _names_of_all(names: list[str], rows: Sequence[Sequence[str]], notes: dict[str, Any]) -> list[str]:
    """Return a name for each column, where rows have other numbers of fields than the header."""
    widths = Counter(map(len, rows))
    usual = widths.most_common(1)[0][0] if widths else len(names)
    if widths.get(len(names), 0) or usual == len(names):
        return _unnamed(names)

    # Some programs write a separator at the end of rows, or of the header.
    usual_rows = [row for row in rows if len(row) == usual]
    if usual < len(names) and not any(name.strip() for name in names[usual:]):
        return _unnamed(names[:usual])
    if usual > len(names) and not any(cell.strip() for row in usual_rows for cell in row[len(names) :]):
        return _unnamed([*names, *[""] * (usual - len(names))])
    # R writes no name above the names of rows.
    if usual == len(names) + 1:
        notes["row_names"] = "the first field of each row has no name in the header"
        return _unnamed(["", *names])
    return _unnamed(names)


def _unnamed(names: list[str]) -> list[str]:
    """Return the names, empty ones but the first told apart by their places."""
    empty = [position for position, name in enumerate(names) if not name.strip()]
    return [
        _UNNAMED.format(position) if position in empty and position != 0 else name
        for position, name in enumerate(names)
    ]


def _refuse_title(where: str, found: Sequence[_Record]) -> None:
    """Raise `UserError` for lines above the header: they have one field, all others more."""
    widths = [len(record.fields) for record in found]
    above = next((place for place, width in enumerate(widths) if width > 1), 0)
    if 0 < above <= _MOST_TITLE_LINES and len(widths) - above > 1 and len(set(widths[above:])) == 1:
        title = decoded(where, found[0].fields[0].strip()[:40].encode("latin-1"))[0]
        raise UserError(f"{where}: its first line looks like a title ({title!r}), not like the names of columns; set "
                        f"`skip_lines: {above}`")  # fmt: skip


def _units(rows: Sequence[_Record]) -> str:
    """Return the question about a row of units: texts above columns of numbers, and no number."""
    if len(rows) <= _FEWEST_ROWS or any(is_number(cell) for cell in rows[0].fields):
        return ""
    units = []
    for position, cell in enumerate(rows[0].fields):
        below = [
            row.fields[position] for row in rows[1:] if position < len(row.fields) and row.fields[position].strip()
        ]
        if cell.strip() and len(below) >= _FEWEST_ROWS and all(map(is_number, below)):
            units.append(cell.strip())
    if not units:
        return ""
    return f"row 1 looks like units ({', '.join(units[:4])}); set `skip_rows: 1`"
