"""The numbers in the columns of prepared files, in every form of storage.

A sample is one number, a fixed-size list of numbers, or, in sets written shard by shard and of sequences of vectors,
the bytes of its numbers (little-endian): Parquet keeps bytes as they are, but every small integer of a list in four
bytes, which takes ten times as long to write and to read. `Manifest.types` gives the type of the bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import pyarrow as pa


ENCODED = "encoded"  # type of a column: pictures in the format of their files
RAGGED = "ragged"  # type of a column: sequences of float16 vectors, of any length
WIDTH = 2  # bytes of a number in ragged sequences


def is_encoded(field: pa.Field, types: Mapping[str, str]) -> bool:
    """Return whether a column's samples differ in their number of bytes: encoded pictures, sequences."""
    return types.get(field.name) in (ENCODED, RAGGED)


def kind_of(field: pa.Field, types: Mapping[str, str]) -> tuple[np.dtype[Any], int | None]:
    """Return the type of a column's numbers, and how many a sample has; None if a sample is one number."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(field.type):
        dtype = np.dtype(types[field.name])
        return dtype, field.type.byte_width // dtype.itemsize
    if pa.types.is_fixed_size_list(field.type):
        return _dtype(field.type.value_type), field.type.list_size
    return _dtype(field.type), None


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    """Return numpy's type for an Arrow type; Arrow's own conversion needs pandas, which reading avoids."""
    import pyarrow as pa

    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def numbers(array: pa.Array, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return all numbers of a chunk of a column in order, without a copy."""
    import numpy as np
    import pyarrow as pa

    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width // dtype.itemsize
        return np.frombuffer(array.buffers()[1], dtype)[array.offset * width : (array.offset + len(array)) * width]
    if pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    flat: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=True)
    return flat


def as_bytes(array: pa.Array) -> pa.Array:
    """Return a column of fixed-size lists as bytes, without a copy."""
    import numpy as np
    import pyarrow as pa

    flat = np.ascontiguousarray(array.flatten().to_numpy(zero_copy_only=True))
    width = array.type.list_size * flat.dtype.itemsize
    return pa.Array.from_buffers(pa.binary(width), len(array), [None, pa.py_buffer(flat)])
