"""Reader for columns of TSV, CSV and JSONL files, with the problems of rows that have too many or too few fields."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtlscale.config import UserError
from mtlscale.data.tables.csv_layout import BadQuotes, beginning, records
from mtlscale.data.tables.raw_files import Problems, decoded, suffix_of, unpacked

TABS, COMMAS, JSON_LINES = (".tsv", ".tab", ".txt"), (".csv",), (".jsonl", ".ndjson", ".json")
SUFFIXES = (*TABS, *COMMAS, *JSON_LINES)
QUOTES = ("auto", "always", "never")
_HEAD = 1 << 20  # bytes that show the separator


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


def read_rows(
    where: str, path: Path, columns: Sequence[str], *, header: bool = True, quotes: str = "auto", mend: str = ""
) -> FileRows:
    """Return the rows of a file, whose kind its name tells.

    Args:
        where: The file as messages name it.
        header: Whether the first line names the columns; otherwise they are called 1, 2, …
        quotes: Whether fields may stand in quotes: `always`, `never`, or `auto`, which means in CSV alone.
        mend: Advice for the message about a missing column.
    """
    kind = suffix_of(path.name)
    if kind not in SUFFIXES:
        raise UserError(f"{where} is none of {', '.join(SUFFIXES)}, packed or not; rename or convert it")

    text, encoding = decoded(where, unpacked(where, path))
    if not text.strip():
        raise UserError(f"{where} is empty; leave its task out or mend it")

    rows = FileRows(encoding, columns={name: [] for name in columns})
    if kind in JSON_LINES:
        _read_json(where, text, columns, rows, mend)
        return rows

    quoted = kind in COMMAS if quotes == "auto" else quotes == "always"
    separator = "\t"
    if kind in COMMAS:
        raw = text.encode()
        separator, start = beginning(raw[:_HEAD], ",", whole=len(raw) <= _HEAD)
        text = raw[start:].decode()
    _read_table(where, _fields(where, text, separator, quoted), columns, rows, header, mend)
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
        for number, line in enumerate(re.split(r"\r?\n" if "\n" in text else r"\r", text), start=1):
            if line.strip():
                yield number, line.split(separator)
        return

    try:
        for fields, _, number in records(io.StringIO(text, newline=""), separator, strict=True):
            if any(field.strip() for field in fields):
                yield number, fields
    except BadQuotes as error:
        raise UserError(
            f"{where} line {error.line}: {error}; mend its quotes, or set `quotes: never` where they are text"
        ) from None


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
    for number, row in _objects(text):
        if not isinstance(row, dict):
            rows.problems.append((f"{where} line {number}", "is no JSON object"))
            continue

        if not checked:
            check_columns(where, columns, list(row), mend)
            checked = True

        rows.lines.append(number)
        for name in columns:
            rows.columns[name].append(row.get(name))


def _objects(text: str) -> Iterator[tuple[int, Any]]:
    """Yield the line, or the place in the only list, of each object; None where there is none."""
    if text.lstrip().startswith("["):
        try:
            whole = json.loads(text)
        except (ValueError, RecursionError):
            whole = None
        if isinstance(whole, list):
            yield from enumerate(whole, start=1)
            return

    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _object(line)


def _object(line: str) -> Any:
    """Return the object in a line; some collections of reviews write those of Python."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(line.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
