"""Columns of prepared files as uncompressed arrays on disk.

A column is `<column>.npy`. Encoded pictures and sequences of vectors have two files: `<column>.bytes.npy`, the bytes of
all samples in order, and `<column>.offsets.npy`, the start of each sample and the end of the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from mtlscale.data.format.columns import is_encoded, kind_of, numbers

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

PIECE = 16 << 20  # bytes of samples decoded at a time
BYTES, OFFSETS = ".bytes", ".offsets"  # suffixes of the two files of encoded pictures and sequences


@dataclass(frozen=True)
class ColumnFormat:
    """The format of a column's array; `shape` is that of one sample's numbers."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    encoded: bool = False

    @classmethod
    def of(cls, field: pa.Field, types: Mapping[str, str]) -> ColumnFormat:
        import numpy as np

        if is_encoded(field, types):
            return cls(field.name, np.dtype(np.int64), (), encoded=True)
        dtype, width = kind_of(field, types)
        return cls(field.name, dtype, () if width is None else (width,))

    @property
    def row_bytes(self) -> int:
        """The bytes of a sample; for an encoded picture without the picture itself."""
        return int(self.dtype.itemsize * (self.shape[0] if self.shape else 1))


def columns_of(path: Path, types: Mapping[str, str]) -> list[ColumnFormat]:
    """Return all columns of a prepared file except the ids."""
    import pyarrow.parquet as pq

    return [ColumnFormat.of(field, types) for field in pq.read_schema(path) if field.name != "id"]


def write_arrays(sources: Iterable[Path], columns: Sequence[ColumnFormat], folder: Path) -> None:
    """Write the rows of the sources in order, a few at a time, reading each source once."""
    import pyarrow.parquet as pq

    rows = max(1, PIECE // max(1, sum(column.row_bytes for column in columns)))
    rows = min(rows, 64) if any(column.encoded for column in columns) else rows

    with ExitStack() as stack:
        files = {column.name: _Array.begin(column, folder, stack) for column in columns}
        for path in sources:
            source = pq.ParquetFile(path, memory_map=True, pre_buffer=False)
            for batch in source.iter_batches(rows, columns=list(files), use_threads=False):
                for name, file in files.items():
                    file.add(batch.column(name))
        for file in files.values():
            file.end()


class _Array:
    """The file or files of a column while they are written."""

    def __init__(self, column: ColumnFormat, numbers: IO[bytes], pictures: IO[bytes] | None) -> None:
        self._column, self._file, self._pictures = column, numbers, pictures
        self._rows, self._bytes = 0, 0

    @classmethod
    def begin(cls, column: ColumnFormat, folder: Path, stack: ExitStack) -> _Array:
        def opened(name: str) -> IO[bytes]:
            file = (folder / f"{name}.npy").open("wb")
            stack.callback(_close, file)
            return file

        if not column.encoded:
            array = cls(column, opened(column.name), None)
        else:
            array = cls(column, opened(column.name + OFFSETS), opened(column.name + BYTES))

        array._headers()
        if column.encoded:
            array._file.write(bytes(8))
        return array

    def add(self, values: pa.Array) -> None:
        import numpy as np

        self._rows += len(values)
        if self._pictures is None:
            self._file.write(numbers(values, self._column.dtype).data)
            return

        for value in values:
            self._bytes += self._pictures.write(value.as_buffer())
            self._file.write(np.int64(self._bytes).tobytes())

    def end(self) -> None:
        """Write the final number of rows into the headers."""
        self._headers()
        for file in (self._file, self._pictures):
            if file is not None:
                file.flush()
                os.fsync(file.fileno())

    def _headers(self) -> None:
        import numpy as np

        rows = self._rows + self._column.encoded
        _header(self._file, self._column.dtype, (rows, *self._column.shape))
        if self._pictures is not None:
            _header(self._pictures, np.dtype(np.uint8), (self._bytes,))


def _header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write a header, whose length does not depend on the number of rows: numpy leaves room for growth."""
    import numpy as np

    file.seek(0)
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _close(file: IO[bytes]) -> None:
    with suppress(OSError):  # a full disk has been reported already
        file.close()
