"""Readers for ARFF files of numbers, dense and sparse, and for the label lists that Mulan keeps beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np

from mtlscale.config import UserError

_ATTRIBUTE = re.compile(r"""@attribute\s+('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S+)\s+(.+)""", re.IGNORECASE)
_NUMERIC = ("numeric", "real", "integer")
_CHOICES = re.compile(r"\{\s*([^{}]*?)\s*\}")


def read_arff(where: str, text: str) -> tuple[list[str], np.ndarray]:
    """Return the attribute names and the rows [N, D] of an ARFF file; a missing value (`?`) is NaN.

    Args:
        where: The file as messages name it.
        text: The file's content.

    Raises:
        UserError: A line is malformed (the message gives its number), an attribute is neither numeric nor nominal with
            numbers as choices, two attributes share a name, or there are none.
    """
    lines = enumerate((line.strip() for line in text.split("\n")), start=1)
    names = list(_attributes(where, lines))

    if not names or len(set(names)) < len(names):
        raise UserError(f"{where} has {'two attributes of one name' if names else 'no attributes'}; fetch it again")

    rows = [_row(where, number, line, len(names)) for number, line in lines if line and not line.startswith("%")]
    return names, np.array(rows, np.float64).reshape(-1, len(names))


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


def _attributes(where: str, lines: Iterator[tuple[int, str]]) -> Iterator[str]:
    """Yield the attribute names; the iterator of lines then stands behind `@data`."""
    for number, line in lines:
        if line.lower().startswith("@data"):
            return
        if not line.lower().startswith("@attribute"):
            continue

        match = _ATTRIBUTE.fullmatch(line)
        if match is None:
            raise UserError(f"{where} line {number} is no attribute with a name and a type; fetch it again")

        name = match[1][1:-1].replace("\\", "") if match[1][0] in "'\"" else match[1]
        choices = _CHOICES.fullmatch(match[2].strip())
        is_numeric = all(map(_is_number, choices[1].split(","))) if choices else match[2].strip().lower() in _NUMERIC
        if not is_numeric:
            raise UserError(f"{where} line {number}: attribute {name} is {match[2][:40]}, no number; leave it out")
        yield name

    raise UserError(f"{where} has no @data; fetch it again")


def _row(where: str, number: int, line: str, count: int) -> list[float]:
    try:
        if line.startswith("{") and line.endswith("}"):
            row = [0.0] * count
            for entry in filter(None, (part.strip() for part in line[1:-1].split(","))):
                column, value = entry.split()
                if not 0 <= int(column) < count:
                    raise ValueError(entry)
                row[int(column)] = _value(value)
            return row
        row = [_value(value) for value in line.split(",")]
    except ValueError:
        row = []

    if len(row) != count:
        raise UserError(f"{where} line {number} is no row of {count} numbers; fetch it again")
    return row


def _value(text: str) -> float:
    text = text.strip().strip("'\"")
    return float("nan") if text == "?" else float(text)


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text.strip().strip("'\""))))
    except ValueError:
        return False
