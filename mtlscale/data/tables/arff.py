"""Readers for ARFF files, as Arrow tables or as numbers, and for the label lists that Mulan keeps beside them.

The dialects of Weka, Mulan, MEKA, KEEL and openSMILE are read: weights of instances and attributes, ranges behind a
type, comments behind a line, tabs or spaces between values, declared formats of dates, and lists without braces.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from mtlscale.config import UserError
from mtlscale.data.tables.arrow_types import CATEGORY, NUMBER, WEIGHT, declared_field
from mtlscale.data.tables.notations import date_in

_QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\""""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.+)", re.IGNORECASE)
_CELL = re.compile(rf"""\s*((?:{_QUOTED}|[^,'"])*?)\s*(?:,|$)""")
_SPACED_CELL = re.compile(rf"""[\s,]*({_QUOTED}|[^\s,]+)""")
_BRACES = re.compile(rf"\{{((?:{_QUOTED}|[^}}'\"])*)\}}")
_INSTANCE_WEIGHT = re.compile(r",?\s*\{\s*([-+.\deE]+)\s*\}\s*$")
_COMMENT = re.compile(r"\s+%.*$")
_ARFF = re.compile(r"(?:\s*(?:%[^\n]*)?\n)*\s*@(?:relation|attribute)\s", re.IGNORECASE)
_MEKA = re.compile(r"-C\s+(-?\d+)")
_NUMERIC = ("numeric", "real", "integer")
_MISSING = ("?", "", "<null>")
_NEW_COLUMNS = ("weight", "instance weight")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
# Letters of Java's date formats, the longest first.
_DATE_PARTS = (("yyyy", "%Y"), ("yy", "%y"), ("y", "%Y"), ("MMMM", "%B"), ("MMM", "%b"), ("MM", "%m"), ("M", "%m"),
               ("dd", "%d"), ("d", "%d"), ("HH", "%H"), ("H", "%H"), ("hh", "%I"), ("h", "%I"), ("mm", "%M"),
               ("m", "%M"), ("ss", "%S"), ("s", "%S"), ("SSS", "%f"), ("S", "%f"), ("a", "%p"), ("EEEE", "%A"),
               ("EEE", "%a"), ("E", "%a"), ("XXX", "%z"), ("X", "%z"), ("Z", "%z"), ("z", "%Z"))  # fmt: skip


@dataclass(frozen=True)
class Attribute:
    """Column of an ARFF file.

    Attributes:
        name: The column.
        kind: `number`, `category`, `text` or `date`.
        default: The value that sparse rows leave out.
        numbers: Whether it is a category whose values are all numbers.
        form: The format of a date, as `strptime` writes it; "": 2024-01-31.
    """

    name: str
    kind: str
    default: Any
    numbers: bool = False
    form: str = ""


@dataclass
class _Header:
    attributes: list[Attribute] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    meka: int = 0  # targets at the beginning, or at the end where it is negative


def is_arff(text: str) -> bool:
    """Return whether a text begins as ARFF files do."""
    return _ARFF.match(text) is not None


def read_arff_table(where: str, text: str) -> tuple[pa.Table, list[str]]:
    """Return an ARFF file, dense or sparse, as a table, and the columns that it names as targets.

    `?` is an empty cell. The fields of the table say what the file declares: numbers, categories, weights of instances.

    Args:
        where: The file as messages name it.
        text: The file's content.

    Raises:
        UserError: A line is malformed; the message gives its number.
    """
    header, columns, weights = _parsed(where, text)
    types = {"number": pa.float64(), "category": pa.string(), "text": pa.string(), "date": pa.timestamp("us")}
    declared = {"number": NUMBER, "category": CATEGORY}
    fields = [
        declared_field(attribute.name, types[attribute.kind], declared.get(attribute.kind, ""))
        for attribute in header.attributes
    ]
    arrays = [pa.array(column, entry.type) for column, entry in zip(columns, fields, strict=True)]

    names = [attribute.name for attribute in header.attributes]
    if any(weight is not None for weight in weights):
        name = next((name for name in _NEW_COLUMNS if name not in names), "instance weight 2")
        fields.append(declared_field(name, pa.float64(), WEIGHT))
        arrays.append(pa.array([1.0 if weight is None else weight for weight in weights]))
    outputs = header.outputs or names[: header.meka] if header.meka >= 0 else names[header.meka :]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields)), [name for name in outputs if name in names]


def read_arff(where: str, text: str) -> tuple[list[str], np.ndarray]:
    """Return the attribute names and the rows [N, D] of an ARFF file; a missing value (`?`) is NaN.

    Raises:
        UserError: A line is malformed, or an attribute is neither numeric nor nominal with numbers as choices.
    """
    header, columns, _ = _parsed(where, text)
    arrays = []
    for attribute, column in zip(header.attributes, columns, strict=True):
        if attribute.kind != "number" and not attribute.numbers:
            raise UserError(f"{where}: attribute {attribute.name} is no number; leave it out")
        arrays.append(np.array([np.nan if value is None else float(value) for value in column], dtype=float))
    return [attribute.name for attribute in header.attributes], np.column_stack(arrays)


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


def _parsed(where: str, text: str) -> tuple[_Header, list[list[Any]], list[float | None]]:
    """Return the header, the values of each column, and the weights of the rows."""
    lines = enumerate((line.strip() for line in re.split(r"\r\n|\n|\r", text)), start=1)
    header = _header(where, lines)
    names = [attribute.name for attribute in header.attributes]
    if not names:
        raise UserError(f"{where} has no attributes; it is no ARFF file")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{where} has two columns named {twice!r}; rename one")

    columns: list[list[Any]] = [[] for _ in names]
    weights: list[float | None] = []
    for number, line in lines:
        if line and not line.startswith("%"):
            row, weight = _row(f"{where} line {number}", line, header.attributes)
            weights.append(weight)
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    return header, columns, weights


def _header(where: str, lines: Iterator[tuple[int, str]]) -> _Header:
    """Return what stands above the rows; the iterator of lines then stands behind `@data`."""
    header = _Header()
    for number, line in lines:
        word, _, rest = re.sub(r"\s", " ", line, count=1).partition(" ")
        match word.lower():
            case declaration if declaration.startswith("@data"):
                return header
            case "@relation":
                found = _MEKA.search(rest)
                header.meka = int(found[1]) if found is not None else 0
            case "@outputs" | "@output":
                header.outputs = [_unquoted(cell) for cell in _cells(rest)]
            case declaration if declaration.startswith("@attribute"):
                header.attributes.append(_attribute(f"{where} line {number}", line))
    raise UserError(f"{where} has no @data; it is no ARFF file")


def _attribute(where: str, line: str) -> Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise UserError(f"{where} is no attribute with a name and a type; mend it")
    name, kind = _unquoted(match[1]), match[2].strip()

    braces = _BRACES.match(kind)
    if braces is not None and _is_rest(kind[braces.end() :]):
        return _nominal(name, braces[1])
    word, _, rest = re.sub(r"([\[{%])", r" \1", kind, count=1).partition(" ")
    if word.lower() in _NUMERIC and _is_rest(rest):
        return Attribute(name, "number", 0.0)
    if word.lower() == "string" and _is_rest(rest):
        return Attribute(name, "text", None)
    if re.match(r"date\b", kind, re.IGNORECASE):
        form = _COMMENT.sub("", kind[len("date") :]).strip()
        return Attribute(name, "date", None, form=_strptime_form(_unquoted(form)) if form else "")
    if "," in kind and not kind.startswith("{"):
        return _nominal(name, _COMMENT.sub("", kind))
    raise UserError(f"{where}: attribute {name} is {kind[:40]}; use numeric, date, string or {{a, b, …}}")


def _is_rest(text: str) -> bool:
    """Return whether a range, a weight or a comment, or nothing, stands behind a type."""
    return re.fullmatch(r"\s*(\[[^\]]*\])?\s*(\{\s*[-+.\deE]+\s*\})?\s*(%.*)?", text) is not None


def _nominal(name: str, inside: str) -> Attribute:
    choices = [_unquoted(cell) for cell in _cells(inside)]
    return Attribute(name, "category", choices[0] if choices else None, bool(choices) and all(map(_is_number, choices)))


def _row(where: str, line: str, attributes: Sequence[Attribute]) -> tuple[list[Any], float | None]:
    """Return the values of a line, and its weight if it has one."""
    braces = _BRACES.match(line)
    if braces is not None and re.fullmatch(r"\s*(,?\s*\{[^}]*\})?\s*(%.*)?", line[braces.end() :]):
        return _sparse_row(where, braces[1], attributes), _weight(line[braces.end() :])

    weight, values = _weight(line), line
    if weight is not None:
        values = _INSTANCE_WEIGHT.sub("", line)
    cells = next((cells for cells in _readings(values) if len(cells) == len(attributes)), None)
    if cells is None:
        raise UserError(f"{where} has {len(_cells(values))} values, not {len(attributes)}; mend it")
    return [_value(where, cell, attribute) for cell, attribute in zip(cells, attributes, strict=True)], weight


def _readings(line: str) -> Iterator[list[str]]:
    """Yield the cells of a line by the rules of one program after another."""
    yield _cells(line)
    yield _cells(line.removesuffix(","))
    if "," not in line:
        yield _cells(line.replace("\t", ","))
    yield _SPACED_CELL.findall(line)  # commas, tabs and spaces alike, as Weka reads
    yield _cells(_COMMENT.sub("", line))


def _sparse_row(where: str, inside: str, attributes: Sequence[Attribute]) -> list[Any]:
    row = [attribute.default for attribute in attributes]
    for cell in filter(None, _cells(inside)):
        column, _, value = re.sub(r"\s", " ", cell, count=1).partition(" ")
        if not column.isdigit() or int(column) >= len(attributes):
            raise UserError(f"{where}: {cell[:40]!r} is no column with its value; mend it")
        row[int(column)] = _value(where, value.strip(), attributes[int(column)])
    return row


def _weight(line: str) -> float | None:
    match = _INSTANCE_WEIGHT.search(line) if line.endswith("}") else None
    return float(match[1]) if match is not None and _is_number(match[1]) else None


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
    if cell in _MISSING:
        return None

    text = _unquoted(cell)
    try:
        if attribute.kind == "number":
            return float(text)
    except ValueError:
        raise UserError(f"{where} has {text[:40]!r} in {attribute.name}, no number; mend it") from None
    if attribute.kind == "date":
        date = date_in(text, [attribute.form] if attribute.form else [])
        if date is None:
            example = datetime.datetime(2024, 1, 31, 12).strftime(attribute.form) if attribute.form else "2024-01-31"
            raise UserError(f"{where} has {text[:40]!r} in {attribute.name}, no date such as {example}; mend it")
        return date
    return text


def _strptime_form(java: str) -> str:
    """Return a format of Java's dates as `strptime` writes it."""
    form, position = "", 0
    while position < len(java):
        if java[position] == "'":
            end = java.find("'", position + 1)
            end = len(java) if end < 0 else end
            form, position = form + (java[position + 1 : end] or "'"), end + 1
            continue
        part = next((part for part in _DATE_PARTS if java.startswith(part[0], position)), None)
        form += part[1] if part is not None else java[position].replace("%", "%%")
        position += len(part[0]) if part is not None else 1
    return form


def _unquoted(text: str) -> str:
    text = text.strip()
    if len(text) > 1 and text[0] in "'\"" and text[-1] == text[0]:
        inside = text[1:-1].replace(text[0] * 2, text[0])
        return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", _unescaped, inside)
    return text


def _unescaped(match: re.Match[str]) -> str:
    letter = match[1]
    return chr(int(letter[1:], 16)) if len(letter) > 1 else _ESCAPES.get(letter, letter)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
