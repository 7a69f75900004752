"""From an index of image files to a prepared data set, decoded block by block: what the image pipelines share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.spec import SPLITS, TaskSuite, UserError, knob
from pipelines._base import Pipeline, Prepared, Work
from pipelines._blocks import stream
from pipelines._hub import HubFolder, is_hub_folder
from pipelines._pixels import BadImage
from pipelines._store import Store, Unreadable, read_file, shown

BLOCK_BYTES = 8 << 20  # of decoded samples; a few blocks are in flight per core
# Encoded images of this size take this process longer than starting Ray and letting two cores decode them.
RAY_FROM_BYTES = 256e6
CHANNELS = 3

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """A decoded column: the type and shape of one sample."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class Files:
    """Reads the files a row of the index names, and remembers which one is being worked on."""

    def __init__(self, root: str, row: Row) -> None:
        self._root, self._row, self.current = root, row, ""

    def __call__(self, part: str) -> bytes:
        self.current = part
        return read_file(self._root, self._row[part])

    def path(self, part: str) -> str:
        self.current = part
        return f"{self._root}/{self._row[part]}"


# One row of the index -> its arrays by column name. Raises `BadImage`; importable on the workers.
Decode = Callable[[Row, Files], dict[str, np.ndarray]]


class ImagePipeline(Pipeline):
    """A pipeline whose samples are images decoded one by one."""

    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES

    limit: int = knob(0, low=0, high=1e9, help="only the first so many images of each part of the source; 0: all")

    def wanted(self, name: str) -> bool:
        """Whether a file, by its name below the source, belongs to the set."""
        raise NotImplementedError

    def inside(self, archive: str) -> str | None:
        """The folder in which an archive's members count as extracted, by its name; None: it is none of ours."""
        return ""

    def store(self, source: Path) -> Store:
        """The files of the set."""
        return Store(source, self.wanted, self.inside)

    def locate(self, source: Path) -> Path:
        """The known archive in the folder, else what was named; `prepare` says what its files lack."""
        if not source.exists():
            raise UserError(f"{self.name}: source {source} does not exist; pass --source with its folder or archive")
        if self.hub and is_hub_folder(source):
            return source
        return next((source / archive for archive in self.archives if (source / archive).is_file()), source)

    def source_fingerprint(self, located: Path | None) -> str:
        """Names and sizes of the files of the set, what lists and labels hold; pictures in a folder are not read."""
        assert located is not None
        if self.hub and is_hub_folder(located):
            return HubFolder(self.name, located).fingerprint()
        return self.store(located).fingerprint()

    def limited(self, names: list[str]) -> list[str]:
        return names[: self.limit] if self.limit else names


@dataclass
class ImageSet:
    """The rows of an image set, decoded as they are asked for: `Pieces` of `pipelines._base`.

    `index` has `id`, `split`, one column per part (a location) and, optionally, finished `target.<task>` columns.
    `problems` are samples the index already had to leave out.
    """

    index: pa.Table
    columns: dict[str, Column]
    decode: Decode
    root: str
    problems: list[tuple[str, str]]
    work: Work
    _sums: np.ndarray = field(default_factory=lambda: np.zeros((2, CHANNELS), object))
    _pixels: int = 0
    _notes: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, pa.Table]]:
        function = partial(decode_rows, root=self.root, decode=self.decode, columns=self.columns)
        work = self.work
        for block in stream(self._blocks(), function, work.engine, work.progress, "decode"):
            split = block["split"][0].as_py()  # blocks of the index do not cross splits, nor do pieces of a block
            if block["problem"].null_count < len(block):
                bad = block.filter(pc.is_valid(block["problem"]))
                pairs = list(zip(bad["file"].to_pylist(), bad["problem"].to_pylist(), strict=True))
                if not work.skip_bad:
                    name, problem = pairs[0]
                    raise UserError(f"image {name} {problem}; mend it, or pass --skip-bad to leave such images out")
                self.problems += pairs
                block = block.filter(pc.is_null(block["problem"]))
            if not len(block):
                continue
            if split == "train":
                self._count(block)
            yield split, block.drop_columns(["split", "file", "problem", "sums"])
        self._notes = self.work.settle(self.problems, "images")

    def _blocks(self) -> Iterator[pa.Table]:
        bytes_per_row = sum(column.size * np.dtype(column.dtype).itemsize for column in self.columns.values())
        rows = max(1, min(self.work.rows_per_block, BLOCK_BYTES // bytes_per_row))
        for split in SPLITS:
            part = self.index.filter(pc.field("split") == split).sort_by("id").combine_chunks()
            for start in range(0, len(part), rows):
                yield part.slice(start, rows)

    def _count(self, block: pa.Table) -> None:
        sums = block["sums"].combine_chunks().flatten().to_numpy().reshape(len(block), 2, CHANNELS)
        self._sums += sums.sum(0).astype(object)  # whole numbers without end: no rounding, whatever the blocks
        self._pixels += len(block) * (self.columns["input"].size // CHANNELS)

    def finish(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Extras (channel means and standard deviations of train, 0..255) and notes, after the last row."""
        count = max(self._pixels, 1)
        means = [int(total) / count for total in self._sums[0]]
        # n Σx² - (Σx)² in whole numbers: no cancellation.
        variances = [(count * int(q) - int(s) ** 2) / count**2 for s, q in zip(*self._sums, strict=True)]
        return {"mean": means, "std": [variance**0.5 for variance in variances]}, self._notes


def prepared_images(
    suite: TaskSuite,
    index: pa.Table,
    decode: Decode,
    columns: dict[str, Column],
    root: str,
    problems: list[tuple[str, str]],
    work: Work,
    notes: dict[str, Any] | None = None,
) -> Prepared:
    """What a pipeline hands over for an index of images, nothing decoded yet."""
    shapes = {name.removeprefix("target."): column.shape for name, column in columns.items() if name != "input"}
    if not work.skip_bad and problems:
        work.settle(problems, "images")
    check_parts(suite.name, index)
    pieces = ImageSet(index, columns, decode, root, problems, work)
    return Prepared(suite, {}, target_shapes=shapes, notes=notes or {}, pieces=pieces)


def check_parts(name: str, index: pa.Table) -> None:
    """Said before hours of decoding."""
    present = set(index["split"].to_pylist())
    for split in SPLITS:
        if split not in present:
            raise UserError(f"{name}: no image falls into {split}; use more of the source, or another split")


def decode_rows(table: pa.Table, root: str, decode: Decode, columns: dict[str, Column]) -> pa.Table:
    """A block of the index -> its samples. Rows with a problem keep zeros and say it in `problem`."""
    count = len(table)
    arrays = {name: np.zeros((count, *column.shape), column.dtype) for name, column in columns.items()}
    names: list[str | None] = [None] * count
    problems: list[str | None] = [None] * count
    for number, row in enumerate(table.to_pylist()):
        files = Files(root, row)
        try:
            for name, value in decode(row, files).items():
                arrays[name][number] = value
        except (BadImage, Unreadable) as error:
            names[number] = shown(str(row[files.current])) if files.current else row["id"]
            problems[number] = str(error)
    result = {name: table[name] for name in table.column_names if name in ("id", "split") or name.startswith("target.")}
    for name, values in arrays.items():
        result[name] = pa.FixedSizeListArray.from_arrays(values.reshape(-1), columns[name].size)
    result["sums"] = pa.FixedSizeListArray.from_arrays(_sums(arrays["input"]), 2 * CHANNELS)
    result["file"], result["problem"] = pa.array(names, pa.string()), pa.array(problems, pa.string())
    return pa.table(result)


def _sums(images: np.ndarray) -> np.ndarray:
    """uint8 [N, 3, H, W] -> per image and channel Σx, then Σx²: int64 [N * 6]."""
    flat = images.reshape(len(images), CHANNELS, -1)
    sums = np.empty((len(images), 2, CHANNELS), np.int64)
    for number, image in enumerate(flat):
        wide = image.astype(np.uint32)
        sums[number, 0] = wide.sum(1)
        sums[number, 1] = np.multiply(wide, wide, out=wide).sum(1, dtype=np.int64)
    return sums.reshape(-1)


def index_table(rows: list[dict[str, Any]], parts: list[str]) -> pa.Table:
    """Rows (id, split and a location per part) as a table, also where there is none."""
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in ("id", "split", *parts)})
