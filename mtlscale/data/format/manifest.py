"""Manifest of a prepared data set: its tasks, counts, files and origin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from mtlscale.config import SPLITS, TaskSuite, UserError
from mtlscale.data.format.table_columns import from_json

FORMATS = (1, 2)  # 2: samples of several numbers may be stored as bytes
SPECIAL_WORDS = ("<pad>", "<unk>")  # token ids 0 and 1
MANIFEST = "manifest.json"
ORIGIN = ".origin"  # a file beside the manifest with the URL of the storage, if files of splits are only there


class FileEntry(BaseModel):
    """The entry of one data file; its path is relative to the folder of the manifest."""

    path: str
    bytes: int
    rows: int
    sha256: str


class SourceInfo(BaseModel):
    """The origin of the data; without paths, so that equal sources give equal manifests."""

    description: str
    fingerprint: str


class Manifest(BaseModel):
    """The description of a prepared data set and of its preparation.

    Equal preparations have equal manifests, byte for byte.
    """

    format: int = FORMATS[0]
    name: str
    results_version: int
    plugin: str = ""  # hash of the file its pipeline comes from, where that is a plugin
    options: dict[str, Any]
    source: SourceInfo
    fingerprint: str  # sha256 over the data files; part of every run id
    suite: TaskSuite
    target_shapes: dict[str, tuple[int, ...]] = {}  # task -> shape of one sample's target, where it is an array
    types: dict[str, str] = {}  # column -> the type of its numbers; sets of earlier versions do not say
    counts: dict[str, dict[str, int]]  # task -> split -> samples with a label
    class_counts: dict[str, dict[str, dict[str, int]]] = {}  # task -> split -> class -> samples
    files: list[FileEntry]
    vocabulary: str | None = None  # file name
    notes: dict[str, Any] = {}  # observations of the pipeline: duplicates, empty documents, skipped rows

    @property
    def splits(self) -> tuple[str, ...]:
        """The usual splits, and parts of test that are measured separately, too (`test_…`)."""
        folders = {entry.path.partition("/")[0] for entry in self.files}
        return (*SPLITS, *sorted(folder for folder in folders if folder.startswith("test_")))

    def shards(self, split: str, stream: str) -> list[FileEntry]:
        """Return the files of a stream in the order of their rows: one, or one per shard."""
        single_file, folder = f"{split}/{stream}.parquet", f"{split}/{stream}/"
        return sorted(
            (entry for entry in self.files if entry.path == single_file or entry.path.startswith(folder)),
            key=lambda entry: entry.path,
        )


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a prepared data set; `suite.extras["columns"]` are the names of a table's input columns.

    Raises:
        UserError: If the folder holds none that this version can read.
    """
    path = folder / MANIFEST
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is no prepared data set (no {MANIFEST}); run `mtlscale prepare` first") from None
    except ValidationError as error:
        raise UserError(
            f"{path} cannot be read ({error.errors()[0]['msg']}); delete {folder} and prepare again"
        ) from None

    if manifest.format not in FORMATS:
        raise UserError(
            f"{path} has format {manifest.format}, this version reads {FORMATS}; delete it and prepare again"
        )
    if columns := _column_names(manifest):
        manifest.suite = replace(manifest.suite, extras={**manifest.suite.extras, "columns": columns})
    return manifest


def _column_names(manifest: Manifest) -> list[str]:
    """Return the names of the input columns of a table, as its notes have them; none if they do not."""
    shape, notes = manifest.suite.input_shape, manifest.notes
    if manifest.suite.input_kind != "vector" or len(shape) != 1:
        return []
    if "columns" in notes:
        names = [part for entry in notes["columns"] for part in from_json(entry).parts]
    else:
        names = list(notes.get("features", []))
    return names if len(names) == shape[0] else []


def of_split(entry: FileEntry, split: str) -> bool:
    """Return whether a file holds samples of a split."""
    return entry.path.startswith(f"{split}/")


def damage(folder: Path, manifest: Manifest) -> str | None:
    """Return the first problem of the files on disk, by existence and size alone; None if they are as recorded."""
    fetched = (folder / ORIGIN).exists()
    for entry in manifest.files:
        try:
            size = (folder / entry.path).stat().st_size
        except OSError:
            if fetched and any(of_split(entry, split) for split in SPLITS):
                continue
            return f"{entry.path} is missing"
        if size != entry.bytes:
            return f"{entry.path} has {size} bytes instead of {entry.bytes}"
    return None
