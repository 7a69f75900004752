"""Readers for ARFF files of numbers, and for the label lists that Mulan keeps beside them."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pyarrow as pa

from mtlscale.config import UserError
from pipelines._formats.arff_table import read_arff_table


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
