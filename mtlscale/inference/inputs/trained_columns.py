"""The cells of a column to predict as the training data had them: the same categories, numbers and dates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.data.format.categories import as_text
from mtlscale.data.format.table_columns import EMPTY, TableColumn
from mtlscale.data.tables.smiles import BadSmiles

if TYPE_CHECKING:
    import pyarrow as pa

    from mtlscale.data.tables.table_format import TableFormat

    Array = np.ndarray[Any, Any]


def as_trained(
    column: TableColumn, cells: pa.ChunkedArray, form: TableFormat
) -> tuple[pa.ChunkedArray, dict[int, str]]:
    """Return the cells of a column in the type that its conversion reads, and row -> problem of those that are none.

    Args:
        cells: The cells as they were read.
        form: How the tables of the training data were written.
    """
    import pyarrow as pa

    from mtlscale.data.tables.arrow_types import is_text

    if column.kind == "smiles":
        return _molecules(column, cells)
    if not is_text(cells.type):
        return cells, {}
    if column.kind in ("category", "hash"):
        names = {text: _category(column, text, form) for text in dict.fromkeys(cells.to_pylist()) if text is not None}
        return pa.chunked_array(
            [[None if text is None else names[text] for text in cells.to_pylist()]], pa.string()
        ), {}
    return _numbers_or_dates(column, cells, form)


def empty_cells(cells: pa.ChunkedArray) -> Array:
    """Return the mask [N] of cells without a value."""
    import pyarrow.compute as pc

    from mtlscale.data.tables.arrow_types import is_text

    if is_text(cells.type):
        cells = pc.if_else(pc.equal(pc.utf8_trim_whitespace(cells), ""), None, cells)
    floats = str(cells.type) in ("float", "double")
    mask: Array = pc.is_null(cells, nan_is_null=floats).to_numpy(zero_copy_only=False)
    return np.array(mask)


def _molecules(column: TableColumn, cells: pa.ChunkedArray) -> tuple[pa.ChunkedArray, dict[int, str]]:
    import pyarrow as pa

    wrong: dict[int, str] = {}
    texts = cells.cast(pa.string())  # a table of empty cells alone has no texts
    for row, text in enumerate(texts.to_pylist()):
        try:
            column.molecule(text)
        except BadSmiles as error:
            wrong[row] = str(error)
    return texts, wrong


def _category(column: TableColumn, text: str, form: TableFormat) -> str | None:
    """Return the name that a text has among the categories of training; None: an empty cell."""
    from mtlscale.data.tables.missing_words import WORDS

    name = text.strip()
    if name in column.categories:
        return name
    if form.missing is None and name in WORDS:
        return None
    spellings = (name.lower(), _as_number(name))  # true and false, and numbers, have one name in training
    return next((spelling for spelling in spellings if spelling in column.categories), name)


def _as_number(text: str) -> str:
    try:
        return as_text(float(text))
    except ValueError:
        return EMPTY


def _numbers_or_dates(
    column: TableColumn, cells: pa.ChunkedArray, form: TableFormat
) -> tuple[pa.ChunkedArray, dict[int, str]]:
    import pyarrow as pa

    from mtlscale.data.tables.missing_words import WORDS
    from mtlscale.data.tables.notations import POINT, date_in, number_in

    values: list[Any] = []
    wrong: dict[int, str] = {}
    for row, text in enumerate(cells.to_pylist()):
        if text is None or not text.strip() or text.strip() in WORDS:
            values.append(None)
            continue
        if column.kind == "date":
            values.append(date_in(text, form.dates or ()))
        else:
            values.append(number_in(text, form.decimal or POINT))
        if values[-1] is None:
            wrong[row] = f"has {text[:40]!r} in {column.name}, which is no {column.kind}"
    kind = pa.timestamp("us") if column.kind == "date" else pa.float64()
    return pa.chunked_array([values], kind), wrong
