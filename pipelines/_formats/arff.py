"""Readers for ARFF files, as Arrow tables or as numbers, and for the label lists that Mulan keeps beside them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from mtlscale.config import UserError

_ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)\s+(.+)""", re.IGNORECASE)
_CELL = re.compile(r"""\s*((?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^,'"])*?)\s*(?:,|$)""")
_NUMERIC = ("numeric", "real", "integer")
_MISSING = "?"


@dataclass(frozen=True)
class Attribute:
    """Column of an ARFF file; `kind` is number, text or date, `default` the value that sparse rows leave out."""

    name: str
    kind: str
    default: Any


def read_arff_table(where: str, text: str) -> pa.Table:
    """Return an ARFF file, dense or sparse, as a table; `?` is an empty cell.

    Args:
        where: The file as messages name it.
        text: The file's content.

    Raises:
        UserError: A line is malformed; the message gives its number.
    """
    lines = enumerate((line.strip() for line in text.split("\n")), start=1)
    attributes = list(_attributes(where, lines))
    names = [attribute.name for attribute in attributes]
    if not names:
        raise UserError(f"{where} has no attributes; it is no ARFF file")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{where} has two columns named {twice!r}; rename one")

    columns: list[list[Any]] = [[] for _ in attributes]
    for number, line in lines:
        if line and not line.startswith("%"):
            for column, value in zip(columns, _row(f"{where} line {number}", line, attributes), strict=True):
                column.append(value)

    types = {"number": pa.float64(), "text": pa.string(), "date": pa.timestamp("us")}
    arrays = [pa.array(column, types[attribute.kind]) for column, attribute in zip(columns, attributes, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def read_arff(where: str, text: str) -> tuple[list[str], np.ndarray]:
    """Return the attribute names and the rows [N, D] of an ARFF file; a missing value (`?`) is NaN.

    Raises:
        UserError: A line is malformed, or an attribute is neither numeric nor nominal with numbers as choices.
    """
    table = read_arff_table(where, text)
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_floating(column.type):
            raise UserError(f"{where}: attribute {name} is no number; leave it out")
    return table.column_names, np.column_stack([column.to_numpy() for column in table.columns])


def read_labels(where: str, text: str) -> list[str]:
    """Return the names of all labels in a Mulan XML list, nested ones included.

    A document type is refused, because its entities could expand without limit.
    """
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise UserError(f"{where} declares a document type; a list of labels has none: fetch it again")

    try:
        root = ElementTree.fromstring(text.encode())
    except ElementTree.ParseError as error:
        raise UserError(f"{where} is no XML ({error}); fetch it again") from None

    names = [str(element.get("name", "")) for element in root.iter() if element.tag.rpartition("}")[2] == "label"]
    if not names or not all(names) or len(set(names)) < len(names):
        raise UserError(f"{where} names no labels, or one twice; fetch it again")
    return names


def _attributes(where: str, lines: Iterator[tuple[int, str]]) -> Iterator[Attribute]:
    """Yield the attributes; the iterator of lines then stands behind `@data`."""
    for number, line in lines:
        if line.lower().startswith("@data"):
            return
        if not line.lower().startswith("@attribute"):
            continue

        match = _ATTRIBUTE.fullmatch(line)
        if match is None:
            raise UserError(f"{where} line {number} is no attribute with a name and a type; mend it")
        name, kind = _unquoted(match[1]), match[2].strip()

        if kind.startswith("{") and kind.endswith("}"):
            choices = [_unquoted(cell) for cell in _cells(kind[1:-1])]
            if choices and all(map(_is_number, choices)):
                yield Attribute(name, "number", float(choices[0]))
            else:
                yield Attribute(name, "text", choices[0] if choices else None)
        elif kind.lower() in _NUMERIC:
            yield Attribute(name, "number", 0.0)
        elif kind.lower().startswith("date"):
            yield Attribute(name, "date", None)
        elif kind.lower() == "string":
            yield Attribute(name, "text", None)
        else:
            raise UserError(f"{where} line {number}: attribute {name} is {kind[:40]}; use numeric, date, string or "
                            "{a, b, …}")  # fmt: skip

    raise UserError(f"{where} has no @data; it is no ARFF file")


def _row(where: str, line: str, attributes: list[Attribute]) -> list[Any]:
    """Return the values of a line."""
    if line.startswith("{") and line.endswith("}"):
        row = [attribute.default for attribute in attributes]
        for cell in filter(None, _cells(line[1:-1])):
            column, _, value = cell.partition(" ")
            if not column.isdigit() or int(column) >= len(attributes):
                raise UserError(f"{where}: {cell[:40]!r} is no column with its value; mend it")
            row[int(column)] = _value(where, value.strip(), attributes[int(column)])
        return row

    cells = _cells(line)
    if len(cells) != len(attributes):
        raise UserError(f"{where} has {len(cells)} values, not {len(attributes)}; mend it")
    return [_value(where, cell, attribute) for cell, attribute in zip(cells, attributes, strict=True)]


def _cells(line: str) -> list[str]:
    """Return the cells of a line, those in quotes whole and with their quotes."""
    if "'" not in line and '"' not in line:
        return [cell.strip() for cell in line.split(",")]

    cells: list[str] = []
    position = 0
    while position <= len(line):
        match = _CELL.match(line, position)
        if match is None:
            return [*cells, line[position:]]
        cells.append(match[1])
        position = match.end()
        if position == len(line) and not match[0].endswith(","):
            break
    return cells


def _value(where: str, cell: str, attribute: Attribute) -> Any:
    if cell == _MISSING:
        return None

    text = _unquoted(cell)
    try:
        if attribute.kind == "number":
            return float(text)
        if attribute.kind == "date":
            stamp = datetime.datetime.fromisoformat(text)
            return stamp.astimezone(datetime.UTC).replace(tzinfo=None) if stamp.tzinfo else stamp
    except ValueError:
        kind = "number" if attribute.kind == "number" else "date such as 2024-01-31"
        raise UserError(f"{where} has {text[:40]!r} in {attribute.name}, no {kind}; mend it") from None
    return text


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
