"""From an index of image files to a prepared data set, decoded block by block: what the image pipelines share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.spec import SPLITS, TaskSuite, UserError, knob
from pipelines._base import Compute, Part, Pipeline, Prepared, Work
from pipelines._hub import HubFolder, is_hub_folder
from pipelines._pixels import BadImage
from pipelines._store import Store, Unreadable, read_file, shown

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
    """Reads the files a row of the index names, and remembers which one is being worked on.

    keep: the part whose bytes are kept.
    """

    def __init__(self, root: str, row: Row, keep: str | None = None) -> None:
        self._root, self._row, self._keep = root, row, keep
        self.current, self.kept = "", b""

    def __call__(self, part: str) -> bytes:
        self.current = part
        content = read_file(self._root, self._row[part])
        if part == self._keep:
            self.kept = content
        return content

    def path(self, part: str) -> str:
        self.current = part
        return f"{self._root}/{self._row[part]}"


# One row of the index -> its arrays by column name. Raises `BadImage`; importable on the workers.
Decode = Callable[[Row, Files], dict[str, np.ndarray]]


class ImagePipeline(Pipeline):
    """A pipeline whose samples are images decoded one by one."""

    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES
    picture: ClassVar[str] = "image"  # the part of a row that becomes the input

    limit: int = knob(0, low=0, high=1e9, help="only the first so many images of each part of the source; 0: all")
    encoded: bool = knob(False, help="keep pictures as their files have them, decoded while training: less disk")

    def options(self) -> dict[str, Any]:
        """Without `encoded` where nothing is: what was prepared before there was a choice is found."""
        return {name: value for name, value in super().options().items() if name != "encoded" or value}

    @property
    def kept(self) -> str | None:
        """The part that is not decoded."""
        return self.picture if self.encoded else None

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
    """The rows of an image set: `Pieces` of `pipelines._base`.

    `rows` has `id`, `split`, one column per part (a location) and, optionally, finished `target.<task>` columns.
    `problems` are samples the index already had to leave out.
    """

    rows: pa.Table
    columns: dict[str, Column]
    decode: Decode
    root: str
    problems: list[tuple[str, str]]
    work: Work
    picture: str | None = None
    what: str = "image"

    @property
    def index(self) -> dict[str, pa.Table]:
        return {split: self.rows.filter(pc.field("split") == split).drop_columns(["split"]) for split in SPLITS}

    @property
    def row_bytes(self) -> int:
        return sum(column.size * np.dtype(column.dtype).itemsize for column in self.columns.values())

    @property
    def compute(self) -> Compute:
        return DecodeRows(self.root, self.decode, self.columns, self.picture)

    def finish(
        self, told: list[tuple[str, Any]], problems: list[tuple[str, str]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Extras: channel means and standard deviations of train, 0..255."""
        sums = np.zeros((2, CHANNELS), object)  # whole numbers without end: no rounding, whatever the parts
        count = 0
        for split, (images, of_part) in told:
            if split == "train":
                sums += of_part.astype(object)
                count += images * (self.columns["input"].size // CHANNELS)
        count = max(count, 1)
        means = [int(total) / count for total in sums[0]]
        # n Σx² - (Σx)² in whole numbers: no cancellation.
        variances = [(count * int(q) - int(s) ** 2) / count**2 for s, q in zip(*sums, strict=True)]
        extras = {"mean": means, "std": [variance**0.5 for variance in variances]}
        return extras, self.work.settle([*self.problems, *problems], "images")


def prepared_images(
    suite: TaskSuite,
    index: pa.Table,
    decode: Decode,
    columns: dict[str, Column],
    root: str,
    problems: list[tuple[str, str]],
    work: Work,
    picture: str | None,
    notes: dict[str, Any] | None = None,
) -> Prepared:
    """What a pipeline hands over for an index of images, nothing decoded yet. picture: the part with the input, where
    that is kept as its file has it."""
    shapes = {name.removeprefix("target."): column.shape for name, column in columns.items() if name != "input"}
    if not work.skip_bad and problems:
        work.settle(problems, "images")
    check_parts(suite.name, index)
    if picture is not None and picture not in index.column_names:
        raise UserError(f"{suite.name}: this source has no encoded pictures to keep; drop `encoded`")
    pieces = ImageSet(index, columns, decode, root, problems, work, picture)
    return Prepared(suite, {}, target_shapes=shapes, notes=notes or {}, pieces=pieces)


def check_parts(name: str, index: pa.Table) -> None:
    """Said before hours of decoding."""
    present = set(index["split"].to_pylist())
    for split in SPLITS:
        if split not in present:
            raise UserError(f"{name}: no image falls into {split}; use more of the source, or another split")


@dataclass(frozen=True)
class DecodeRows:
    """Some rows of the index -> their samples; how many of them, and their `_sums`, are told."""

    root: str
    decode: Decode
    columns: dict[str, Column]
    picture: str | None

    def __call__(self, table: pa.Table) -> Part:
        arrays = {name: np.zeros((len(table), *column.shape), column.dtype) for name, column in self.columns.items()}
        good: list[int] = []
        kept: list[bytes] = []
        problems: list[tuple[str, str]] = []
        for number, row in enumerate(table.to_pylist()):
            files = Files(self.root, row, self.picture)
            try:
                for name, value in self.decode(row, files).items():
                    arrays[name][len(good)] = value
            except (BadImage, Unreadable) as error:
                problems.append((shown(str(row[files.current])) if files.current else row["id"], str(error)))
                continue
            good.append(number)
            kept.append(files.kept)
        arrays = {name: values[: len(good)] for name, values in arrays.items()}
        told = (len(good), _sums(arrays["input"]))
        if problems:
            table = table.take(pa.array(good, pa.int64()))
        result = {name: table[name] for name in table.column_names if name == "id" or name.startswith("target.")}
        for name, values in arrays.items():
            result[name] = pa.FixedSizeListArray.from_arrays(values.reshape(-1), self.columns[name].size)
        if self.picture is not None:
            result["input"] = pa.array(kept, pa.large_binary())
        return Part(pa.table(result), problems, told)


def _sums(images: np.ndarray) -> np.ndarray:
    """uint8 [N, 3, H, W] -> per channel Σx, then Σx²: int64 [2, 3]."""
    sums = np.zeros((2, CHANNELS), np.int64)
    for image in images:  # a shard may have none
        wide = image.reshape(CHANNELS, -1).astype(np.float64)  # exact: whole numbers below 2^53
        sums[0] += wide.sum(1).astype(np.int64)
        sums[1] += np.einsum("cn,cn->c", wide, wide).astype(np.int64)
    return sums


def index_table(rows: list[dict[str, Any]], parts: list[str]) -> pa.Table:
    """Rows (id, split and a location per part) as a table, also where there is none."""
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in ("id", "split", *parts)})
