"""The numbers in the columns of prepared files, however they are stored.

A sample is one number, a fixed-size list of numbers, or, in sets written shard by shard and of sequences of vectors,
the bytes of its numbers (little-endian): Parquet keeps bytes as they are, but every small integer of a list in four
bytes, which takes ten times as long to write and to read. `Manifest.types` says what the bytes are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa


ENCODED = "encoded"  # as the type of a column: pictures as their files have them
RAGGED = "ragged"  # sequences of float16 vectors, as many as a sample has
WIDTH = 2  # bytes of a number of theirs


def is_encoded(field: pa.Field, types: Mapping[str, str]) -> bool:
    """Whether the bytes of a column's samples differ in number: encoded pictures, sequences."""
    return types.get(field.name) in (ENCODED, RAGGED)


def kind_of(field: pa.Field, types: Mapping[str, str]) -> tuple[np.dtype[Any], int | None]:
    """The type of a column's numbers, and how many a sample has; None where it is a number itself."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(field.type):
        dtype = np.dtype(types[field.name])
        return dtype, field.type.byte_width // dtype.itemsize
    if pa.types.is_fixed_size_list(field.type):
        return _dtype(field.type.value_type), field.type.list_size
    return _dtype(field.type), None


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Arrow's own way to it needs pandas, which reading does without."""
    import pyarrow as pa

    found: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return found


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """All numbers of a chunk of a column, one after the other, without a copy."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width // dtype.itemsize
        return np.frombuffer(array.buffers()[1], dtype)[array.offset * width : (array.offset + len(array)) * width]
    if pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    found: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=True)
    return found


def as_bytes(array: pa.Array) -> pa.Array:
    """A column of fixed-size lists as bytes, without a copy."""
    import numpy as np
    import pyarrow as pa

    flat = np.ascontiguousarray(array.flatten().to_numpy(zero_copy_only=True))
    width = array.type.list_size * flat.dtype.itemsize
    return pa.Array.from_buffers(pa.binary(width), len(array), [None, pa.py_buffer(flat)])
