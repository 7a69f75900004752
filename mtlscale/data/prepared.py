"""The on-disk form of a prepared data set, and its reader.

`<home>/data/<name>/<key>/` holds `manifest.json` and one Parquet file per split and stream, `<split>/<stream>.parquet`:

* `id`: string, the sample's stable id; rows are sorted by it, so the bytes do not depend on who computed them,
* `input`: fixed-size list, one flattened sample (`suite.input_shape`); tokens int32, pixels uint8, vectors float32,
* `target.<task>`: integers (`MISSING_CLASS` where absent) or float32 (NaN where absent); a fixed-size list where a
  sample's target is an array, whose shape is in `manifest.target_shapes`,
* `weight`: float32, where the suite is weighted: what a sample's training loss is multiplied by.

Streams without labels have no `target` column.

Text sets add a vocabulary file: one word a line, the line number is the token id, the first two are `SPECIAL_WORDS`;
and, where word vectors were fitted, `VECTORS`: a Parquet file of words (`id`) and vectors (`vector`, float32).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from mtlscale.data.batches import Samples
from mtlscale.spec import SPLITS, TaskSuite, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from torch import Tensor

FORMAT = 1
MANIFEST = "manifest.json"
VECTORS = "vectors.parquet"
SPECIAL_WORDS = ("<pad>", "<unk>")  # token ids 0 and 1


class FileEntry(BaseModel):
    """One data file, relative to the folder of the manifest."""

    path: str
    bytes: int
    rows: int
    sha256: str


class SourceInfo(BaseModel):
    """Where the data came from; without paths, so that equal sources give equal manifests."""

    description: str
    fingerprint: str


class Manifest(BaseModel):
    """What a prepared data set is, and how it came about. Equal preparations have equal manifests, byte for byte."""

    format: int = FORMAT
    name: str
    results_version: int
    options: dict[str, Any]
    source: SourceInfo
    fingerprint: str  # sha256 over the data files; part of every run id
    suite: TaskSuite
    target_shapes: dict[str, tuple[int, ...]] = {}  # task -> shape of one sample's target, where it is an array
    counts: dict[str, dict[str, int]]  # task -> split -> samples with a label
    class_counts: dict[str, dict[str, dict[str, int]]] = {}  # task -> split -> class -> samples
    files: list[FileEntry]
    vocabulary: str | None = None  # file name
    notes: dict[str, Any] = {}  # what the pipeline found on its way: duplicates, empty documents, skipped rows


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared data set; `UserError` where the folder holds none this version can read."""
    path = folder / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is no prepared data set (no {MANIFEST}); run `mtlscale prepare` first") from None
    except ValidationError as error:
        raise UserError(
            f"{path} cannot be read ({error.errors()[0]['msg']}); delete {folder} and prepare again"
        ) from None
    if manifest.format != FORMAT:
        raise UserError(
            f"{path} has format {manifest.format}, this version reads {FORMAT}; delete it and prepare again"
        )
    return manifest


def damage(folder: Path, manifest: Manifest) -> str | None:
    """What is wrong with the files on disk, by existence and size alone: None where they are as recorded."""
    for entry in manifest.files:
        try:
            size = (folder / entry.path).stat().st_size
        except OSError:
            return f"{entry.path} is missing"
        if size != entry.bytes:
            return f"{entry.path} has {size} bytes instead of {entry.bytes}"
    return None


@dataclass
class PreparedData:
    """A prepared data set in memory."""

    folder: Path
    manifest: Manifest
    suite: TaskSuite
    splits: dict[str, dict[str, Samples]]  # split -> stream -> samples


def read_vocabulary(folder: Path, manifest: Manifest) -> list[str]:
    """The words by token id, `SPECIAL_WORDS` first; `UserError` where the file does not fit the manifest."""
    assert manifest.vocabulary is not None, f"{manifest.name} has no vocabulary"
    path = folder / manifest.vocabulary
    words = path.read_text(encoding="utf-8").split("\n")[:-1]
    if len(words) != manifest.suite.vocabulary_size or tuple(words[: len(SPECIAL_WORDS)]) != SPECIAL_WORDS:
        raise UserError(
            f"{path} does not fit the manifest: {len(words)} words instead of {manifest.suite.vocabulary_size}, or not "
            f"{SPECIAL_WORDS} first; delete {folder} and prepare again"
        )
    return words


def load_prepared(folder: Path, splits: Sequence[str] = SPLITS) -> PreparedData:
    """Read a prepared data set.

    Inputs keep their stored type and share memory with the decoded Arrow columns: do not write into them. Text sets get
    their words as `suite.extras["vocabulary"]` and, where they have them, the file of their word vectors as
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
    data = {
        split: {stream: _samples(folder, manifest, split, stream, tasks) for stream, tasks in suite.streams.items()}
        for split in splits
    }
    return PreparedData(folder, manifest, suite, data)


def read_ids(folder: Path, split: str, stream: str) -> list[str]:
    """The stable ids of a stream's samples, in the order `load_prepared` has them."""
    import pyarrow.parquet as pq

    return pq.read_table(folder / split / f"{stream}.parquet", columns=["id"])["id"].to_pylist()


def _samples(folder: Path, manifest: Manifest, split: str, stream: str, tasks: tuple[str, ...]) -> Samples:
    import pyarrow.parquet as pq

    columns = ["input", *(f"target.{task}" for task in tasks), *(["weight"] if manifest.suite.weighted else [])]
    table = pq.read_table(folder / split / f"{stream}.parquet", columns=columns, memory_map=True, use_threads=False)
    return Samples(
        _tensor(table["input"], manifest.suite.input_shape),
        {task: _target(_tensor(table[f"target.{task}"], manifest.target_shapes.get(task, ()))) for task in tasks},
        _tensor(table["weight"], ()) if manifest.suite.weighted else None,
    )


def _tensor(column: pa.ChunkedArray, shape: tuple[int, ...]) -> Tensor:
    """[N, *shape], without a copy where the column is one chunk."""
    import torch

    flat = column.combine_chunks()
    if shape:
        flat = flat.flatten()
    return torch.from_dlpack(flat).reshape(len(column), *shape)


def _target(tensor: Tensor) -> Tensor:
    """Integers as losses index with them (int64); numbers as stored."""
    return tensor if tensor.is_floating_point() else tensor.long()
