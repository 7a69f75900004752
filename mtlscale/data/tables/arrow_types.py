"""Columns of every type of Arrow as the few types that tables are made of: numbers, dates, texts, lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

KIND = b"mtlscale.kind"  # key in the metadata of a field whose file declares what the column is
CATEGORY, NUMBER, WEIGHT = "category", "number", "weight"
_DIGITS = 18  # of a decimal number that 64 bits hold
_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}


def plain_table(table: pa.Table) -> pa.Table:
    """Return a table whose columns are of plain types, as far as they can be.

    Dictionaries are decoded, and declared categories where their values are no texts; short and decimal numbers become
    integers or floats, durations and times of the day seconds, other forms of text, and bytes that are UTF-8, strings.
    """
    for position, field in enumerate(table.schema):
        column, declared = _plain(table.column(position), field.type)
        kind = declared or declared_kind(field)
        if column.type != field.type or declared:
            changed = pa.field(field.name, column.type, metadata={KIND: kind.encode()} if kind else None)
            table = table.set_column(position, changed, column)
    return table


def declared_kind(field: pa.Field) -> str:
    """Return the kind that a file declares for a column; "" if it declares none."""
    return str((field.metadata or {}).get(KIND, b"").decode())


def declared_field(name: str, type: pa.DataType, kind: str) -> pa.Field:
    """Return the field of a column whose file declares its kind."""
    return pa.field(name, type, metadata={KIND: kind.encode()} if kind else None)


def is_text(kind: pa.DataType) -> bool:
    """Return whether a type is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def by_text(column: pa.ChunkedArray, read: Callable[[str], Any], kind: pa.DataType) -> pa.ChunkedArray:
    """Return the values that the texts of a column are read as; each different text is read once, blank ones are empty.

    Args:
        read: Function from a text to its value; None where it has none.
        kind: The type of the values.
    """
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    values = [None if text is None or not text.strip() else read(text) for text in encoded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(values, kind).take(encoded.indices)])


def _plain(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[pa.ChunkedArray, str]:
    """Return a column in a plain type, and the kind that its type declares."""
    types = pa.types
    if types.is_dictionary(kind):
        values = _decoded(column, kind)
        return values, "" if is_text(values.type) or types.is_null(values.type) else CATEGORY
    if types.is_run_end_encoded(kind):
        return _plain(_chunked([pc.run_end_decode(chunk) for chunk in column.chunks], kind.value_type), kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        if getattr(kind, "subtype", None) is not None and types.is_struct(kind.storage_type):
            return _intervals(column, kind), ""
        return _plain(_chunked([chunk.storage for chunk in column.chunks], kind.storage_type), kind.storage_type)
    return _simple(column, kind), ""


def _simple(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    types = pa.types
    if types.is_float16(kind):
        return column.cast(pa.float32())
    if types.is_decimal(kind):
        is_whole = kind.scale == 0 and kind.precision <= _DIGITS  # by its type, and fits
        return column.cast(pa.int64() if is_whole else pa.float64())
    if types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(pa.float64(), safe=False), _PER_SECOND[kind.unit])
    if types.is_time(kind):
        integers = column.cast(pa.int32() if types.is_time32(kind) else pa.int64())
        return pc.divide(integers.cast(pa.float64(), safe=False), _PER_SECOND[kind.unit])
    if types.is_date64(kind):
        return column.cast(pa.date32())
    if types.is_string_view(kind):
        return column.cast(pa.string())
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind) or (
        types.is_fixed_size_binary(kind)
    ):  # fmt: skip
        try:
            return column.cast(pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return column
    if types.is_list_view(kind) or types.is_large_list_view(kind) or types.is_fixed_size_list(kind):
        return pa.chunked_array([column.to_pylist()], pa.list_(kind.value_type))
    return column


def _decoded(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the values of a dictionary in a plain type; `dictionary_decode` does not know all types."""
    chunks = []
    for chunk in column.chunks:
        values = _plain(pa.chunked_array([chunk.dictionary]), kind.value_type)[0]
        chunks.append(values.combine_chunks().take(chunk.indices))
    return _chunked(chunks, _plain(pa.chunked_array([], kind.value_type), kind.value_type)[0].type)


def _intervals(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the intervals of pandas as texts such as (0.5, 1.0]."""
    opening = "[" if kind.closed in ("left", "both") else "("
    closing = "]" if kind.closed in ("right", "both") else ")"
    cells = [cell for chunk in column.chunks for cell in chunk.storage.to_pylist()]
    texts = [None if cell is None or cell["left"] is None else f"{opening}{cell['left']}, {cell['right']}{closing}"
             for cell in cells]  # fmt: skip
    return pa.chunked_array([texts], pa.string())


def _chunked(chunks: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array(chunks) if chunks else pa.chunked_array([], kind)
