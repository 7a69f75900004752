"""Reader of a stream's prepared files, a few row groups at a time, from a folder or a URL; needs no torch."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.data.format.columns import is_encoded, kind_of, numbers
from mtlscale.data.sampling.stream_order import RowIndices

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mtlscale.data.format.manifest import Manifest

BLOCK = 1024  # most rows of a row group that stay together; another number gives another order
Columns = dict[str, "NDArray[Any]"]  # [N], or [N, numbers of a sample]


@dataclass(frozen=True)
class ShardColumn:
    """The format of a column of numbers.

    `picture` holds height and width of pictures that are decoded and scaled when they are read.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # shape of one sample
    picture: tuple[int, int] | None = None

    @classmethod
    def of(cls, field: Any, manifest: Manifest) -> ShardColumn:
        types, shape = manifest.types, manifest.suite.input_shape
        if is_encoded(field, types):
            return cls(field.name, np.dtype(np.uint8), (math.prod(shape),), (shape[1], shape[2]))
        dtype, count = kind_of(field, types)
        return cls(field.name, dtype, () if count is None else (count,))

    def empty(self, rows: int) -> NDArray[Any]:
        return np.empty((rows, *self.shape), self.dtype)


def ids_of(folder: Path, files: Sequence[str], url: str | None = None) -> list[str]:
    """Return the stable id of every row of the files; they may hold any other columns."""
    ids: list[str] = []
    for name in files:
        with _opened(folder, url, name) as file:
            ids += file.read(columns=["id"], use_threads=False)["id"].to_pylist()
    return ids


@dataclass(frozen=True, eq=False)
class Shards:
    """The files of a stream in one split.

    * `folder`: the files' folder on this machine; a file that is not in it is read below `url`.
    * `first` [groups + 1]: the first row of each row group, and the number of rows.
    * `file`, `number` [groups]: the index of a row group's file, and its number in that file.
    """

    folder: Path
    files: tuple[str, ...]
    columns: tuple[ShardColumn, ...]
    first: RowIndices
    file: RowIndices
    number: RowIndices
    url: str | None = None

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, split: str, stream: str, url: str | None = None) -> Shards:
        files = tuple(shard.path for shard in manifest.shards(split, stream))
        rows: list[int] = []
        locations: list[tuple[int, int]] = []
        columns: tuple[ShardColumn, ...] = ()
        for file_index, name in enumerate(files):
            with _opened(folder, url, name) as file:
                fields = [field for field in file.schema_arrow if field.name != "id"]
                columns = columns or tuple(ShardColumn.of(field, manifest) for field in fields)
                for group_number in range(file.metadata.num_row_groups):
                    rows.append(file.metadata.row_group(group_number).num_rows)
                    locations.append((file_index, group_number))

        group_locations = np.array(locations, np.int64).reshape(-1, 2)
        return cls(folder, files, columns, np.cumsum([0, *rows]), group_locations[:, 0], group_locations[:, 1], url)

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def starts(self) -> RowIndices:
        """The starts of the blocks, which are row groups or parts of them, and the number of rows."""
        parts = [np.arange(start, end, BLOCK) for start, end in zip(self.first[:-1], self.first[1:], strict=True)]
        return np.concatenate([*parts, self.first[-1:]])

    def group(self, index: int, names: tuple[str, ...] = ()) -> Columns:
        """Return the columns of a row group, restricted to `names` if there are any."""
        columns = [column for column in self.columns if not names or column.name in names]
        with _opened(self.folder, self.url, self.files[self.file[index]]) as file:
            table = file.read_row_group(
                int(self.number[index]), columns=[column.name for column in columns], use_threads=False
            )

        arrays = {}
        for column in columns:
            array = table[column.name].combine_chunks()
            flat = numbers(array, column.dtype) if column.picture is None else _pixels(array, column.picture)
            arrays[column.name] = flat.reshape(-1, *column.shape)
        return arrays

    def ids(self) -> list[str]:
        """Return the stable id of every row."""
        return ids_of(self.folder, self.files, self.url)

    def read(self, rows: RowIndices, group: Callable[[int], Columns] | None = None) -> Columns:
        """Return the columns at these rows, in this order; only one more row group is in memory at a time.

        Args:
            group: A function that reads a row group, such as a cached one; default: `group` of this object.
        """
        columns = {column.name: column.empty(len(rows)) for column in self.columns}
        order = np.argsort(rows, kind="stable")
        sorted_rows = rows[order]
        bounds = np.searchsorted(sorted_rows, self.first)

        for group_index in np.flatnonzero(np.diff(bounds)).tolist():
            span = slice(bounds[group_index], bounds[group_index + 1])
            for name, values in (group or self.group)(group_index).items():
                columns[name][order[span]] = values[sorted_rows[span] - self.first[group_index]]

        return columns


def _pixels(pictures: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    from mtlscale.data.format.image_decoding import picture

    return np.stack([picture(content.as_buffer().to_pybytes(), size)[0] for content in pictures])


def _opened(folder: Path, url: str | None, name: str) -> Any:
    import pyarrow.parquet as pq

    if url is None or (folder / name).exists():
        try:
            return pq.ParquetFile(folder / name, memory_map=True, pre_buffer=False)
        except FileNotFoundError:
            text = f"{folder / name} has vanished since it was prepared; the same command prepares it again"
            raise FileNotFoundError(errno.ENOENT, text) from None
    import fsspec

    return pq.ParquetFile(fsspec.open(f"{url}/{name}", "rb").open(), pre_buffer=True)
