"""The prepared files of a stream, read a few row groups at a time, from a folder or from a URL; needs no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.data.columns import is_encoded, kind_of, numbers
from mtlscale.data.windows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mtlscale.data.manifest import Manifest

BLOCK = 1024  # rows of a row group that stay together at most; another number is another order
Columns = dict[str, "NDArray[Any]"]  # [N], or [N, numbers of a sample]


@dataclass(frozen=True)
class Column:
    """A column of numbers. picture: height and width of those that are decoded and scaled when they are read."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]  # of one sample's
    picture: tuple[int, int] | None = None

    @classmethod
    def of(cls, field: Any, manifest: Manifest) -> Column:
        types, shape = manifest.types, manifest.suite.input_shape
        if is_encoded(field, types):
            return cls(field.name, np.dtype(np.uint8), (math.prod(shape),), (shape[1], shape[2]))
        dtype, count = kind_of(field, types)
        return cls(field.name, dtype, () if count is None else (count,))

    def empty(self, rows: int) -> NDArray[Any]:
        return np.empty((rows, *self.shape), self.dtype)


def ids_of(folder: Path, files: Sequence[str], url: str | None = None) -> list[str]:
    """The stable id of every row of these files, whatever else they hold."""
    found: list[str] = []
    for name in files:
        with _opened(folder, url, name) as file:
            found += file.read(columns=["id"], use_threads=False)["id"].to_pylist()
    return found


@dataclass(frozen=True, eq=False)
class Shards:
    """The files of a stream in one split.

    folder: where they are on this machine; a file that is not there is read below `url`. first [groups + 1]: where the
    row groups begin, and the number of rows; file, number [groups]: in which of the files, and which group of it.
    """

    folder: Path
    files: tuple[str, ...]
    columns: tuple[Column, ...]
    first: Rows
    file: Rows
    number: Rows
    url: str | None = None

    @classmethod
    def of(cls, folder: Path, manifest: Manifest, split: str, stream: str, url: str | None = None) -> Shards:
        files = tuple(shard.path for shard in manifest.shards(split, stream))
        rows: list[int] = []
        places: list[tuple[int, int]] = []
        columns: tuple[Column, ...] = ()
        for place, name in enumerate(files):
            with _opened(folder, url, name) as file:
                fields = [field for field in file.schema_arrow if field.name != "id"]
                columns = columns or tuple(Column.of(field, manifest) for field in fields)
                for number in range(file.metadata.num_row_groups):
                    rows.append(file.metadata.row_group(number).num_rows)
                    places.append((place, number))
        of = np.array(places, np.int64).reshape(-1, 2)
        return cls(folder, files, columns, np.cumsum([0, *rows]), of[:, 0], of[:, 1], url)

    def __len__(self) -> int:
        return int(self.first[-1])

    @property
    def starts(self) -> Rows:
        """Where blocks begin, row groups or parts of them, and the number of rows."""
        parts = [np.arange(a, b, BLOCK) for a, b in zip(self.first[:-1], self.first[1:], strict=True)]
        return np.concatenate([*parts, self.first[-1:]])

    def group(self, place: int, names: tuple[str, ...] = ()) -> Columns:
        """The columns of a row group; those of these names, where there are any."""
        wanted = [column for column in self.columns if not names or column.name in names]
        with _opened(self.folder, self.url, self.files[self.file[place]]) as file:
            table = file.read_row_group(
                int(self.number[place]), columns=[column.name for column in wanted], use_threads=False
            )
        found = {}
        for column in wanted:
            array = table[column.name].combine_chunks()
            flat = numbers(array, column.dtype) if column.picture is None else _pixels(array, column.picture)
            found[column.name] = flat.reshape(-1, *column.shape)
        return found

    def ids(self) -> list[str]:
        """The stable id of every row."""
        return ids_of(self.folder, self.files, self.url)

    def read(self, rows: Rows, group: Callable[[int], Columns] | None = None) -> Columns:
        """The columns at these rows, in this order; one row group at a time beside them. group: where those come from
        that may have been read already."""
        found = {column.name: column.empty(len(rows)) for column in self.columns}
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        edges = np.searchsorted(wanted, self.first)
        for place in np.flatnonzero(np.diff(edges)).tolist():
            at = slice(edges[place], edges[place + 1])
            for name, values in (group or self.group)(place).items():
                found[name][order[at]] = values[wanted[at] - self.first[place]]
        return found


def _pixels(pictures: Any, size: tuple[int, int]) -> NDArray[np.uint8]:
    from mtlscale.data.pictures import picture

    return np.stack([picture(content.as_buffer().to_pybytes(), size)[0] for content in pictures])


def _opened(folder: Path, url: str | None, name: str) -> Any:
    import pyarrow.parquet as pq

    if url is None or (folder / name).exists():
        return pq.ParquetFile(folder / name, memory_map=True, pre_buffer=False)
    import fsspec

    return pq.ParquetFile(fsspec.open(f"{url}/{name}", "rb").open(), pre_buffer=True)
