"""The path from an index of image files to a prepared data set, decoded block by block, for all image pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, TaskSuite, UserError, knob
from pipelines._formats.hub import HubFolder, is_hub_folder
from pipelines._images.pixels import BadImage
from pipelines._sources.file_store import Store, Unreadable, location_text, read_file
from pipelines.contract import Compute, ComputedRows, Pipeline, PrepareContext, Prepared

# Above this size of encoded images, starting Ray and decoding on two cores is faster than this process alone.
RAY_FROM_BYTES = 256e6
CHANNELS = 3

Row = Mapping[str, Any]


@dataclass(frozen=True)
class DecodedColumn:
    """The type and the shape of one sample in a decoded column."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of values in a sample."""
        return int(np.prod(self.shape))


class Files:
    """Reader of the files that a row of the index names, which remembers the current one for error messages.

    Args:
        root: Folder of the locations.
        keep: Modality whose encoded bytes are kept; None: none.
    """

    def __init__(self, root: str, row: Row, keep: str | None = None) -> None:
        self._root, self._row, self._keep = root, row, keep
        self.current, self.encoded_modality = "", b""

    def __call__(self, part: str) -> bytes:
        """Return the content of the row's file of a modality."""
        self.current = part
        content = read_file(self._root, self._row[part])
        if part == self._keep:
            self.encoded_modality = content
        return content

    def path(self, part: str) -> str:
        """Return the path of the row's file of a modality."""
        self.current = part
        return f"{self._root}/{self._row[part]}"


# One row of the index -> its arrays by column name. Raises `BadImage`; importable on the workers.
Decode = Callable[[Row, Files], dict[str, np.ndarray]]


class ImagePipeline(Pipeline):
    """Pipeline whose samples are images decoded one by one."""

    ray_from_bytes: ClassVar[float] = RAY_FROM_BYTES
    picture: ClassVar[str] = "image"  # the modality that becomes the input

    limit: int = knob(0, low=0, high=1e9, help="only the first so many images of each part of the source; 0: all")
    encoded: bool = knob(False, help="keep pictures as their files have them, decoded while training: less disk")

    def options(self) -> dict[str, Any]:
        """Return the knobs, without `encoded` where it is off.

        Sets that were prepared before this knob existed therefore keep their identity.
        """
        return {name: value for name, value in super().options().items() if name != "encoded" or value}

    @property
    def encoded_modality(self) -> str | None:
        """The modality that is kept as encoded in its file; None if all are decoded."""
        return self.picture if self.encoded else None

    def selects(self, name: str) -> bool:
        """Return whether a file, by its name below the source, belongs to the set."""
        raise NotImplementedError

    def inside(self, archive: str) -> str | None:
        """Return the folder that an archive's members count as extracted into, by the archive's name.

        None means that the archive does not belong to the set.
        """
        return ""

    def store(self, source: Path) -> Store:
        """Return the files of the set."""
        return Store(source, self.selects, self.inside)

    def locate(self, source: Path) -> Path:
        """Return the known archive in the folder, else the source; `prepare` reports missing files."""
        if not source.exists():
            raise UserError(f"{self.name}: source {source} does not exist; pass --source with its folder or archive")
        if self.hub and is_hub_folder(source):
            return source
        return next((source / archive for archive in self.archives if (source / archive).is_file()), source)

    def source_fingerprint(self, located: Path | None) -> str:
        """Return a hash of the names and sizes of the set's files, and of the content of lists and labels.

        Pictures in a folder are not read.
        """
        assert located is not None
        if self.hub and is_hub_folder(located):
            return HubFolder(self.name, located).fingerprint()
        return self.store(located).fingerprint()

    def limited(self, names: list[str]) -> list[str]:
        """Return the first `limit` names, or all if there is no limit."""
        return names[: self.limit] if self.limit else names


@dataclass
class ImageSet:
    """The rows of an image set: `Pieces` of `pipelines.contract`.

    `rows` has `id`, `split`, one column of locations per modality and, optionally, finished `target.<task>` columns.
    `problems` are samples that the index already had to leave out.
    """

    rows: pa.Table
    columns: dict[str, DecodedColumn]
    decode: Decode
    root: str
    problems: list[tuple[str, str]]
    work: PrepareContext
    picture: str | None = None
    what: str = "image"

    @property
    def index(self) -> dict[str, pa.Table]:
        """The rows of each split."""
        return {split: self.rows.filter(pc.field("split") == split).drop_columns(["split"]) for split in SPLITS}

    @property
    def row_bytes(self) -> int:
        """The size in bytes of a decoded row."""
        return sum(column.size * np.dtype(column.dtype).itemsize for column in self.columns.values())

    @property
    def compute(self) -> Compute:
        """The function that decodes some rows."""
        return DecodeRows(self.root, self.decode, self.columns, self.picture)

    def finish(
        self, told: list[tuple[str, Any]], problems: list[tuple[str, str]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return channel means and standard deviations of train, 0..255, as extras, and notes on bad images."""
        sums = np.zeros((2, CHANNELS), object)  # Python integers: no rounding, however the rows fall into parts
        count = 0
        for split, (images, part_sums) in told:
            if split == "train":
                sums += part_sums.astype(object)
                count += images * (self.columns["input"].size // CHANNELS)

        count = max(count, 1)
        means = [int(total) / count for total in sums[0]]
        # n Σx² - (Σx)² in integers has no cancellation.
        variances = [(count * int(q) - int(s) ** 2) / count**2 for s, q in zip(*sums, strict=True)]

        extras = {"mean": means, "std": [variance**0.5 for variance in variances]}
        return extras, self.work.settle([*self.problems, *problems], "images")


def prepared_images(
    suite: TaskSuite,
    index: pa.Table,
    decode: Decode,
    columns: dict[str, DecodedColumn],
    root: str,
    problems: list[tuple[str, str]],
    context: PrepareContext,
    picture: str | None,
    notes: dict[str, Any] | None = None,
) -> Prepared:
    """Return a pipeline's result for an index of images, nothing decoded yet.

    Args:
        index: The rows: `id`, `split`, locations and finished targets.
        decode: The function from a row to its arrays.
        root: Folder of the locations.
        problems: (name, problem) of samples that the index left out.
        picture: Modality of the input if it is kept as encoded in its file; None: it is decoded.
    """
    shapes = {name.removeprefix("target."): column.shape for name, column in columns.items() if name != "input"}

    if not context.skip_bad and problems:
        context.settle(problems, "images")
    check_parts(suite.name, index)
    if picture is not None and picture not in index.column_names:
        raise UserError(f"{suite.name}: this source has no encoded pictures to keep; drop `encoded`")

    pieces = ImageSet(index, columns, decode, root, problems, context, picture)
    return Prepared(suite, {}, target_shapes=shapes, notes=notes or {}, pieces=pieces)


def check_parts(name: str, index: pa.Table) -> None:
    """Raise `UserError` for a split without images, before hours of decoding."""
    present = set(index["split"].to_pylist())
    for split in SPLITS:
        if split not in present:
            raise UserError(f"{name}: no image falls into {split}; use more of the source, or another split")


@dataclass(frozen=True)
class DecodeRows:
    """Function from some rows of the index to their samples, with their number and `_sums` as statistics."""

    root: str
    decode: Decode
    columns: dict[str, DecodedColumn]
    picture: str | None

    def __call__(self, table: pa.Table) -> ComputedRows:
        arrays = {name: np.zeros((len(table), *column.shape), column.dtype) for name, column in self.columns.items()}
        good_rows: list[int] = []
        encoded: list[bytes] = []
        problems: list[tuple[str, str]] = []

        for number, row in enumerate(table.to_pylist()):
            files = Files(self.root, row, self.picture)
            try:
                for name, value in self.decode(row, files).items():
                    arrays[name][len(good_rows)] = value
            except (BadImage, Unreadable) as error:
                problems.append((location_text(str(row[files.current])) if files.current else row["id"], str(error)))
                continue
            good_rows.append(number)
            encoded.append(files.encoded_modality)

        arrays = {name: values[: len(good_rows)] for name, values in arrays.items()}
        statistics = (len(good_rows), _sums(arrays["input"]))
        if problems:
            table = table.take(pa.array(good_rows, pa.int64()))

        result = {name: table[name] for name in table.column_names if name == "id" or name.startswith("target.")}
        for name, values in arrays.items():
            result[name] = pa.FixedSizeListArray.from_arrays(values.reshape(-1), self.columns[name].size)
        if self.picture is not None:
            result["input"] = pa.array(encoded, pa.large_binary())

        return ComputedRows(pa.table(result), problems, statistics)


def _sums(images: np.ndarray) -> np.ndarray:
    """Return Σx, then Σx², per channel of uint8 images [N, 3, H, W]: int64 [2, 3]."""
    sums = np.zeros((2, CHANNELS), np.int64)
    for image in images:  # a shard may be empty
        wide = image.reshape(CHANNELS, -1).astype(np.float64)  # exact: whole numbers below 2^53
        sums[0] += wide.sum(1).astype(np.int64)
        sums[1] += np.einsum("cn,cn->c", wide, wide).astype(np.int64)
    return sums


def index_table(rows: list[dict[str, Any]], parts: list[str]) -> pa.Table:
    """Return rows (id, split and a location per modality) as a table, also if there are none."""
    return pa.table({name: pa.array([row[name] for row in rows], pa.string()) for name in ("id", "split", *parts)})
