"""Reader for single cells of Arrow and Parquet files as bytes: pictures stay encoded, arrays become `.npy`."""

from __future__ import annotations

import functools
import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

IN_TABLE = "\1"  # separates a file's path, a row and a column; no file name can contain it
_GROUPS = 8  # cached column chunks of Parquet row groups: the columns of one or two groups


def location(file: str, row: int, column: str) -> str:
    """Return the location of a cell for `read_cell`."""
    return f"{file}{IN_TABLE}{row}{IN_TABLE}{column}"


def read_cell(root: str, cell: str) -> bytes:
    """Return the cell at a `location` below `root`.

    Raises:
        OSError: The file is gone.
        ValueError: The cell is empty, or holds neither a picture nor an array.
    """
    file, row, column = cell.split(IN_TABLE)
    value = _scalar(os.path.join(root, file), int(row), column)  # noqa: PTH118 (a hot path)
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):  # the `datasets` library, once imported, gives arrays its own types
        kind, value = kind.storage_type, value.value

    if pa.types.is_struct(kind):
        return _picture(value.as_py())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return value.as_py() or b""

    if value is None or not value.is_valid or not _is_list(kind):
        raise ValueError(f"{column} is empty" if _is_list(kind) else f"{column} holds {kind}, no picture or array")

    buffer = io.BytesIO()
    np.save(buffer, _channels_last(_array(value.values)))
    return buffer.getvalue()


def column(path: Path, name: str) -> pa.ChunkedArray:
    """Return a whole column, for labels and texts."""
    if path.suffix == ".parquet":
        return pq.ParquetFile(path).read(columns=[name])[name]
    return _open_arrow(*_state(str(path)))[name]


def schema(path: Path) -> pa.Schema:
    """Return the schema of a file."""
    return pq.read_schema(path) if path.suffix == ".parquet" else _open_arrow(*_state(str(path))).schema


def row_count(path: Path) -> int:
    """Return the number of rows of a file."""
    return pq.read_metadata(path).num_rows if path.suffix == ".parquet" else len(_open_arrow(*_state(str(path))))


def _scalar(path: str, row: int, name: str) -> Any:
    state = _state(path)
    if not path.endswith(".parquet"):
        return _open_arrow(*state)[name][row]
    file = _open_parquet(*state)
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if row < count:
            return _group(state, group, name)[row]
        row -= count
    raise ValueError("has fewer rows than before")


def _state(path: str) -> tuple[str, int, int]:
    status = os.stat(path)  # noqa: PTH116
    return path, status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=16)
def _open_arrow(path: str, mtime_ns: int, size: int) -> pa.Table:
    """Return an Arrow file mapped into memory, so that only the parts in use are read."""
    source = pa.memory_map(path)
    try:
        return pa.ipc.open_stream(source).read_all()
    except pa.ArrowInvalid:
        return pa.ipc.open_file(source).read_all()


@functools.lru_cache(maxsize=16)
def _open_parquet(path: str, mtime_ns: int, size: int) -> pq.ParquetFile:
    return pq.ParquetFile(path)


@functools.lru_cache(maxsize=_GROUPS)
def _group(state: tuple[str, int, int], group: int, name: str) -> pa.ChunkedArray:
    # A separate reader, because two threads must not read one file object at once.
    return pq.ParquetFile(state[0]).read_row_group(group, columns=[name])[name]


def _picture(cell: dict[str, Any] | None) -> bytes:
    """Return a picture of the `datasets` library: its bytes, or the file on this machine that its path names."""
    if cell and cell.get("bytes"):
        return cell["bytes"]
    if cell and cell.get("path"):
        return Path(cell["path"]).read_bytes()
    raise ValueError("is empty")


def _array(values: pa.Array) -> np.ndarray:
    """Convert nested lists of numbers to an array; raise `ValueError` if their lengths differ."""
    shape = [len(values)]
    while _is_list(values.type):
        lengths = pc.unique(pc.list_value_length(values)).to_pylist()
        if len(lengths) != 1 or lengths[0] is None:
            raise ValueError("has rows of unlike lengths")
        shape.append(lengths[0])
        values = values.flatten()
    if values.null_count:
        raise ValueError("has empty numbers")
    return values.to_numpy(zero_copy_only=False).reshape(shape)


def _channels_last(array: np.ndarray) -> np.ndarray:
    """Convert [C, H, W] to [H, W, C] if C is 1 or 3 and W is not."""
    if array.ndim == 3 and array.shape[0] in (1, 3) and array.shape[2] not in (1, 3):
        return array.transpose(1, 2, 0)
    return array


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
