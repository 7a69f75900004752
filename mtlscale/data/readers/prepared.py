"""The on-disk form of a prepared data set, and its reader.

`<home>/data/<name>/<key>/` holds `manifest.json` and the Parquet files of every split and stream, either one,
`<split>/<stream>.parquet`, or several, `<split>/<stream>/<number>.parquet`, whose rows follow each other:

* `id`: string, the sample's stable id; rows are sorted by it, so the bytes do not depend on the process that computed
  them,
* `input`: one flattened sample (`suite.input_shape`); tokens int32, pixels uint8, vectors float32; or, where
  `manifest.types` says so, a picture in the format of its file, or a sequence of float16 vectors of any length
  (`ragged`; `input_shape` is (most vectors, numbers of each)),
* `target.<task>`: integers (`MISSING_CLASS` where absent) or float32 (NaN where absent); many of them where a sample's
  target is an array, whose shape is in `manifest.target_shapes`,
* `weight`: float32, where the suite is weighted: the factor of a sample's training loss.

Streams without labels have no `target` column. Many numbers are a fixed-size list or, in sets of several files, bytes
(`mtlscale.data.format.columns`).

Text sets add a vocabulary file: one word a line, the line number is the token id, the first two are `SPECIAL_WORDS`;
and, where word vectors were fitted, `VECTORS`: a Parquet file of words (`id`) and vectors (`vector`, float32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.config import TaskSuite, UserError
from mtlscale.data.batches import Samples
from mtlscale.data.format.arrays import BYTES, OFFSETS
from mtlscale.data.format.columns import RAGGED, is_encoded, kind_of, numbers
from mtlscale.data.format.manifest import (
    MANIFEST,
    SPECIAL_WORDS,
    FileEntry,
    Manifest,
    SourceInfo,
    damage,
    read_manifest,
)
from mtlscale.data.readers.cache import CachedSet, verify
from mtlscale.data.remote import elsewhere

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from torch import Tensor

    from mtlscale.data.sampling.label_noise import NoisyLabels
    from mtlscale.data.sampling.train_fraction import TrainFraction

__all__ = [
    "MANIFEST",
    "VECTORS",
    "FileEntry",
    "Manifest",
    "PreparedData",
    "SourceInfo",
    "SplitsOnDisk",
    "as_stored",
    "damage",
    "load_prepared",
    "read_ids",
    "read_manifest",
    "read_vocabulary",
]

VECTORS = "vectors.parquet"


@dataclass
class PreparedData:
    """The prepared data set, whose splits are read on first access.

    Readers that map its files (`mtlscale.data.readers.random_access`) do not use `splits`.
    """

    folder: Path
    manifest: Manifest
    suite: TaskSuite
    splits: Mapping[str, Mapping[str, Samples]]  # split -> stream -> samples, of the files
    noise: NoisyLabels | None = None  # applied by readers to the training labels
    train_fraction: TrainFraction | None = None  # applied by readers to the training samples

    @property
    def on_disk(self) -> bool:
        """Return whether the set has files; otherwise it has only `splits`, and folder and manifest are unused."""
        return isinstance(self.splits, SplitsOnDisk)


def read_vocabulary(folder: Path, manifest: Manifest) -> list[str]:
    """Return the words by token id, `SPECIAL_WORDS` first.

    Raises:
        UserError: If the file does not fit the manifest.
    """
    assert manifest.vocabulary is not None, f"{manifest.name} has no vocabulary"
    path = folder / manifest.vocabulary
    words = path.read_text(encoding="utf-8").split("\n")[:-1]
    if len(words) != manifest.suite.vocabulary_size or tuple(words[: len(SPECIAL_WORDS)]) != SPECIAL_WORDS:
        raise UserError(
            f"{path} does not fit the manifest: {len(words)} words instead of {manifest.suite.vocabulary_size}, or not "
            f"{SPECIAL_WORDS} first; delete {folder} and prepare again"
        )
    return words


def load_prepared(folder: Path, splits: Sequence[str] | None = None) -> PreparedData:
    """Open a prepared data set; each split (default: all) is read into memory on first access.

    Inputs keep their stored type and share memory with the decoded Arrow columns: do not write into them. Text sets get
    their words as `suite.extras["vocabulary"]` and, if they have them, the file of their word vectors as
    `suite.extras["vectors"]`.
    """
    manifest = read_manifest(folder)
    if problem := damage(folder, manifest):
        raise UserError(f"{folder}: {problem}; delete the folder and prepare again")

    suite = manifest.suite
    if manifest.vocabulary is not None:
        suite = replace(suite, extras={**suite.extras, "vocabulary": read_vocabulary(folder, manifest)})
    if any(entry.path == VECTORS for entry in manifest.files):
        suite = replace(suite, extras={**suite.extras, "vectors": folder / VECTORS})

    return PreparedData(
        folder, manifest, suite, _Splits(folder, manifest, manifest.splits if splits is None else tuple(splits))
    )


class SplitsOnDisk(Mapping[str, Mapping[str, Samples]]):
    """Base of splits that are stored in files."""


class _Splits(SplitsOnDisk):
    """The splits in the files of a folder; each is kept in memory once it is read."""

    def __init__(self, folder: Path, manifest: Manifest, names: tuple[str, ...]) -> None:
        self._folder, self._manifest, self._names = folder, manifest, names
        self._read: dict[str, dict[str, Samples]] = {}
        self._cached: CachedSet | None = None  # for a set whose files are only in a storage

    def __getitem__(self, split: str) -> dict[str, Samples]:
        if split not in self._names:
            raise KeyError(split)
        if split not in self._read:
            streams = self._manifest.suite.streams
            if elsewhere(self._folder, self._manifest, split):
                self._cached = self._cached or CachedSet(self._folder, self._manifest)
            else:
                verify(self._folder, self._manifest, split)
            self._read[split] = {name: self._samples(split, name, tasks) for name, tasks in streams.items()}
        return self._read[split]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the samples, which another process reads itself."""
        return {**self.__dict__, "_read": {}, "_cached": None}

    def _samples(self, split: str, stream: str, tasks: tuple[str, ...]) -> Samples:
        if self._cached is not None:
            samples = as_stored(tensors_of(self._cached.columns(split, stream)), self._manifest, tasks)
        else:
            names = [
                "input",
                *(f"target.{task_name}" for task_name in tasks),
                *(["weight"] if self._manifest.suite.weighted else []),
            ]
            table = _table(self._folder, self._manifest, split, stream, names)
            columns: dict[str, Tensor] = {}
            for name in names:
                columns |= _tensors(table, name, self._manifest.types)
            samples = as_stored(columns, self._manifest, tasks)

        samples.targets = {task: _target(target) for task, target in samples.targets.items()}
        return samples


def tensors_of(columns: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """Return tensors that share the memory of read-only arrays."""
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: torch.from_numpy(array) for name, array in columns.items()}


def as_stored(columns: Mapping[str, Tensor], manifest: Manifest, tasks: tuple[str, ...]) -> Samples:
    """Build samples from the columns of their file, each [N] or flat [N, numbers of a sample]."""
    shapes = {f"target.{task}": shape for task, shape in manifest.target_shapes.items()}
    shapes["input"] = tuple(manifest.suite.input_shape)
    tensors = {name: column.reshape(len(column), *shapes.get(name, ())) for name, column in columns.items()}
    targets = {task: tensors[f"target.{task}"] for task in tasks}

    if f"input{BYTES}" not in tensors:
        return Samples(tensors["input"], targets, tensors.get("weight"))
    if manifest.types.get("input") == RAGGED:
        from mtlscale.data.format.sequences import RaggedSamples

        content, offsets = tensors[f"input{BYTES}"], tensors[f"input{OFFSETS}"]
        return RaggedSamples.of_bytes(content, offsets, manifest.suite.input_shape[-1], targets, tensors.get("weight"))

    from mtlscale.data.format.encoded_images import EncodedImages, EncodedSamples

    pictures = EncodedImages(tensors[f"input{BYTES}"].numpy(), tensors[f"input{OFFSETS}"].numpy(), shapes["input"])
    return EncodedSamples(pictures, targets, tensors.get("weight"))


def read_ids(folder: Path, split: str, stream: str) -> list[str]:
    """Return the stable ids of a stream's samples, in the order of `load_prepared`."""
    ids: list[str] = _table(folder, read_manifest(folder), split, stream, ["id"])["id"].to_pylist()
    return ids


def _table(folder: Path, manifest: Manifest, split: str, stream: str, columns: list[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.parquet as pq

    shards = manifest.shards(split, stream)
    return pa.concat_tables(
        pq.read_table(folder / shard.path, columns=columns, memory_map=True, use_threads=False) for shard in shards
    )


def _tensors(table: pa.Table, name: str, types: Mapping[str, str]) -> dict[str, Tensor]:
    """Return a column, [N] or [N, numbers of a sample], as tensors; without a copy if it is one chunk."""
    import numpy as np

    field, column = table.schema.field(name), table[name].combine_chunks()
    chunk = column.chunk(0) if hasattr(column, "chunk") else column
    if is_encoded(field, types):
        ends = np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
        return tensors_of(
            {name + BYTES: np.frombuffer(chunk.buffers()[2] or b"", np.uint8), name + OFFSETS: ends.astype(np.int64)}
        )

    dtype, width = kind_of(field, types)
    flat = numbers(chunk, dtype)
    return tensors_of({name: flat if width is None else flat.reshape(-1, width)})


def _target(tensor: Tensor) -> Tensor:
    """Return integers as int64, which losses index with, and numbers as stored."""
    return tensor if tensor.is_floating_point() else tensor.long()
