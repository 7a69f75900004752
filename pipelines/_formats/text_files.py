"""Reader for columns of TSV, CSV and JSONL files, with the problems of rows that have too many or too few fields."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtlscale.config import UserError
from pipelines._formats.archive import briefly

TABS, COMMAS, JSON_LINES = (".tsv", ".tab"), (".csv",), (".jsonl", ".ndjson")
SUFFIXES = (*TABS, *COMMAS, *JSON_LINES)
QUOTES = ("auto", "always", "never")
LATIN_1 = "latin-1"
_LONGEST_FIELD = 1 << 30  # characters; csv's own limit is shorter than some documents

Problems = list[tuple[str, str]]


@dataclass(frozen=True)
class FileRows:
    """The wanted columns of a file.

    Attributes:
        encoding: The encoding of the file.
        lines: The line of each usable row.
        columns: Column -> values of the usable rows.
        problems: (file and line, problem) of the other rows.
    """

    encoding: str
    lines: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    problems: Problems = field(default_factory=list)


def decoded(where: str, raw: bytes) -> tuple[str, str]:
    """Return a file's text and its encoding: UTF-8, else Latin-1, in which every byte is a letter.

    Raises:
        UserError: The file is no text.
    """
    if b"\0" in raw:
        raise UserError(f"{where} is not text: it contains NUL bytes; save it as UTF-8")

    try:
        return raw.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return raw.decode(LATIN_1), LATIN_1


def unpacked(where: str, path: Path) -> bytes:
    """Return the bytes of a file, unpacking gzip; raise `UserError` if it cannot be read."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{where} cannot be read ({briefly(error)}); fetch it again") from None


def read_rows(
    where: str, path: Path, columns: Sequence[str], *, header: bool = True, quotes: str = "auto", mend: str = ""
) -> FileRows:
    """Return the rows of a file, whose kind its name tells.

    Args:
        where: The file as messages name it.
        path: The file.
        columns: The columns to read.
        header: Whether the first line names the columns; otherwise they are called 1, 2, …
        quotes: Whether fields may stand in quotes: `always`, `never`, or `auto`, which means in CSV alone.
        mend: Advice for the message about a missing column.
    """
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{where} is none of {', '.join(SUFFIXES)}; rename or convert it")

    text, encoding = decoded(where, unpacked(where, path))
    if not text.strip():
        raise UserError(f"{where} is empty; leave its task out or mend it")

    rows = FileRows(encoding, columns={name: [] for name in columns})
    if kind in JSON_LINES:
        _read_json(where, text, columns, rows, mend)
    else:
        quoted = kind in COMMAS if quotes == "auto" else quotes == "always"
        _read_table(where, _fields(where, text, "," if kind in COMMAS else "\t", quoted), columns, rows, header, mend)

    return rows


def check_columns(where: str, columns: Sequence[str], available: Sequence[str], mend: str) -> None:
    """Raise `UserError` for the first missing column, naming the existing ones."""
    for name in columns:
        if name not in available:
            names = ", ".join(map(str, available[:20])) or "none"
            raise UserError(f"{where} has no column {name!r}; it has {names}{'; ' if mend else ''}{mend}")


def _fields(where: str, text: str, separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the fields of every line that is not blank."""
    if not quoted:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, line.removesuffix("\r").split(separator)
        return

    previous_limit = csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)

    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield reader.line_num, fields
    except csv.Error as error:
        raise UserError(
            f"{where} line {reader.line_num}: {error}; mend its quotes, or set `quotes: never` where they are text"
        ) from None
    finally:
        csv.field_size_limit(previous_limit)


def _read_table(
    where: str, lines: Iterator[tuple[int, list[str]]], columns: Sequence[str], rows: FileRows, header: bool, mend: str
) -> None:
    number, first = next(lines)
    names = [name.strip() for name in first] if header else [str(index + 1) for index in range(len(first))]
    check_columns(where, columns, names, mend)
    places = {name: names.index(name) for name in columns}
    if not header:
        _add(where, number, first, len(names), places, rows)
    for number, fields in lines:
        _add(where, number, fields, len(names), places, rows)


def _add(where: str, number: int, fields: list[str], count: int, places: dict[str, int], rows: FileRows) -> None:
    if len(fields) != count:
        rows.problems.append((f"{where} line {number}", f"has {len(fields)} fields, not {count}"))
        return
    rows.lines.append(number)
    for name, position in places.items():
        rows.columns[name].append(fields[position])


def _read_json(where: str, text: str, columns: Sequence[str], rows: FileRows, mend: str) -> None:
    checked = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None

        if not isinstance(row, dict):
            rows.problems.append((f"{where} line {number}", "is no JSON object"))
            continue

        if not checked:
            check_columns(where, columns, list(row), mend)
            checked = True

        rows.lines.append(number)
        for name in columns:
            rows.columns[name].append(row.get(name))
