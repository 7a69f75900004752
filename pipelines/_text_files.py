"""Columns of a TSV, CSV or JSONL file, row by row: what is no text, and rows that have too many fields or too few."""

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

from mtlscale.spec import UserError
from pipelines._archive import briefly

TABS, COMMAS, JSON_LINES = (".tsv", ".tab"), (".csv",), (".jsonl", ".ndjson")
SUFFIXES = (*TABS, *COMMAS, *JSON_LINES)
QUOTES = ("auto", "always", "never")
LATIN_1 = "latin-1"
_LONGEST_FIELD = 1 << 30  # characters; csv's own limit is shorter than some documents

Problems = list[tuple[str, str]]


@dataclass(frozen=True)
class Rows:
    """The wanted columns of a file's usable rows, the line of each row, and what is wrong with the others."""

    encoding: str
    lines: list[int] = field(default_factory=list)
    columns: dict[str, list[Any]] = field(default_factory=dict)
    problems: Problems = field(default_factory=list)


def decoded(where: str, raw: bytes) -> tuple[str, str]:
    """A file's text and its encoding: UTF-8, else Latin-1, in which every byte is a letter.

    where: as messages have it. `UserError` for what is no text.
    """
    if b"\0" in raw:
        raise UserError(f"{where} is not text: it contains NUL bytes; save it as UTF-8")
    try:
        return raw.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return raw.decode(LATIN_1), LATIN_1


def unpacked(where: str, path: Path) -> bytes:
    """The bytes of a file, which may be packed with gzip. `UserError` where it cannot be read."""
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{where} cannot be read ({briefly(error)}); fetch it again") from None


def read_rows(
    where: str, path: Path, wanted: Sequence[str], *, header: bool = True, quotes: str = "auto", mend: str = ""
) -> Rows:
    """The rows of a file, its kind by its name. Without a header the columns are called 1, 2, …

    quotes: whether fields may stand in quotes; `auto`: in CSV alone. mend: said where a wanted column is
    not there.
    """
    kind = Path(path.name.removesuffix(".gz")).suffix.lower()
    if kind not in SUFFIXES:
        raise UserError(f"{where} is none of {', '.join(SUFFIXES)}; rename or convert it")
    text, encoding = decoded(where, unpacked(where, path))
    if not text.strip():
        raise UserError(f"{where} is empty; leave its task out or mend it")
    found = Rows(encoding, columns={name: [] for name in wanted})
    if kind in JSON_LINES:
        _read_json(where, text, wanted, found, mend)
    else:
        quoted = kind in COMMAS if quotes == "auto" else quotes == "always"
        _read_table(where, _fields(where, text, "," if kind in COMMAS else "\t", quoted), wanted, found, header, mend)
    return found


def check_columns(where: str, wanted: Sequence[str], there: Sequence[str], mend: str) -> None:
    """`UserError` that names the first column that is not there, and those that are."""
    for name in wanted:
        if name not in there:
            names = ", ".join(map(str, there[:20])) or "none"
            raise UserError(f"{where} has no column {name!r}; it has {names}{'; ' if mend else ''}{mend}")


def _fields(where: str, text: str, separator: str, quoted: bool) -> Iterator[tuple[int, list[str]]]:
    """The fields of every line that is not blank, with its number."""
    if not quoted:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                yield number, line.removesuffix("\r").split(separator)
        return
    before = csv.field_size_limit(_LONGEST_FIELD)
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
        csv.field_size_limit(before)


def _read_table(
    where: str, lines: Iterator[tuple[int, list[str]]], wanted: Sequence[str], found: Rows, header: bool, mend: str
) -> None:
    number, first = next(lines)
    names = [name.strip() for name in first] if header else [str(place + 1) for place in range(len(first))]
    check_columns(where, wanted, names, mend)
    places = {name: names.index(name) for name in wanted}
    if not header:
        _add(where, number, first, len(names), places, found)
    for number, fields in lines:
        _add(where, number, fields, len(names), places, found)


def _add(where: str, number: int, fields: list[str], count: int, places: dict[str, int], found: Rows) -> None:
    if len(fields) != count:
        found.problems.append((f"{where} line {number}", f"has {len(fields)} fields, not {count}"))
        return
    found.lines.append(number)
    for name, place in places.items():
        found.columns[name].append(fields[place])


def _read_json(where: str, text: str, wanted: Sequence[str], found: Rows, mend: str) -> None:
    checked = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            found.problems.append((f"{where} line {number}", "is no JSON object"))
            continue
        if not checked:
            check_columns(where, wanted, list(row), mend)
            checked = True
        found.lines.append(number)
        for name in wanted:
            found.columns[name].append(row.get(name))
