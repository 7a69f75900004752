"""Readers for sets that the `datasets` library wrote: `save_to_disk`, Parquet as on the hub, its own cache."""

from __future__ import annotations

import hashlib
import json
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from mtlscale.config import UserError
from pipelines._engine.fingerprint import ends
from pipelines._formats import table_cells

HUB = "hf:"  # prefix of a name on the hub
SPLIT_NAMES = {
    "train": "train", "training": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test",
}  # fmt: skip
_SHARD = re.compile(r"-(\d{5})-of-(\d{5})(-[0-9a-f]+)?$")
_DATASET_DICT, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"
_NAME = re.compile(r"(?P<name>[^:@]+)(:(?P<config>[^:@]+))?(@(?P<revision>[^:@]+))?")
_TIMEOUT_SECONDS = 5.0  # seconds until the hub counts as out of reach; its client would try for 30 s
_UNREADABLE = (pa.ArrowInvalid, OSError, ValueError)
_T = TypeVar("_T")


def is_hub_folder(folder: Path) -> bool:
    """Return whether the `datasets` library, or the hub, wrote this folder."""
    if not folder.is_dir():
        return False
    return is_saved(folder) or any(
        next(folder.glob(pattern), None) for pattern in ("*.arrow", "*.parquet", "*/*.parquet")
    )


def is_saved(folder: Path) -> bool:
    """Return whether `save_to_disk` wrote this folder, which `load_dataset` would refuse."""
    return (folder / _DATASET_DICT).is_file() or (folder / _STATE).is_file()


class HubFolder:
    """The tables of a folder of the `datasets` library, by split.

    Raises:
        UserError: Files are missing or damaged.
    """

    def __init__(self, pipeline: str, root: Path) -> None:
        self.pipeline, self.root = pipeline, root
        self.files = self._shards_by_split()  # the folder's own name of a split -> files in order
        if not self.files:
            raise UserError(f"{pipeline}: {root} has no .arrow or .parquet file with rows; save the set again")
        self._schemas = {split: self._try(files[0], table_cells.schema) for split, files in self.files.items()}

    @property
    def split_names(self) -> dict[str, str]:
        """The folder's own name of each split: train, val, test -> name."""
        split_of_part: dict[str, str] = {}
        for split in self.files:
            if split.lower() in SPLIT_NAMES:
                split_of_part.setdefault(SPLIT_NAMES[split.lower()], split)
        if "train" not in split_of_part:
            raise UserError(f"{self.pipeline}: {self.root} has no split train; it has {', '.join(self.files)}")
        return split_of_part

    def columns(self, requested: Mapping[str, Sequence[str]], optional: Sequence[str] = ()) -> dict[str, str]:
        """Return role -> the column that holds it: the first of the role's possible names that exists, in any case.

        Args:
            requested: Role -> possible names of its column.
            optional: Roles that may be absent.

        Raises:
            UserError: A split has no column for a role that is not optional.
        """
        columns = {}
        for split in self.split_names.values():
            spelling = {name.lower(): name for name in self.names(split)}
            for role, names in requested.items():
                column = next((spelling[name.lower()] for name in names if name.lower() in spelling), None)
                if column is not None:
                    columns[role] = column
                elif role not in optional:
                    raise UserError(
                        f"{self.pipeline}: {split} of {self.root} has no column for {role} ({', '.join(names)}); "
                        f"it has {', '.join(self.names(split))}; rename one"
                    )
                else:
                    columns.pop(role, None)

        return columns

    def names(self, split: str) -> list[str]:
        """Return the columns of a split."""
        return list(self._schemas[split].names)

    def integer_columns(self, split: str) -> list[str]:
        """Return the columns of whole numbers or booleans."""
        schema = self._schemas[split]
        return [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_boolean(f.type)]

    def values(self, split: str, column: str) -> list[Any]:
        """Return a whole column as Python values."""
        return [value for file in self.files[split] for value in self._column(file, column).to_pylist()]

    def cells(self, split: str, column: str) -> list[str]:
        """Return the locations of a column's cells for `read_file`."""
        return [
            table_cells.location(file, row, column)
            for file in self.files[split]
            for row in range(self._try(file, table_cells.row_count))
        ]

    def paths(self, split: str, column: str) -> list[str | None]:
        """Return the file names that the library recorded for a column's pictures, None where it has none."""
        if not pa.types.is_struct(self._schemas[split].field(column).type):
            return [None] * len(self.cells(split, column))
        parts = [self._column(file, column) for file in self.files[split]]
        return [
            path and path.replace("\\", "/").rpartition("/")[2]
            for part in parts
            for chunk in part.chunks
            for path in chunk.field("path").to_pylist()
        ]

    def class_names(self, split: str, column: str) -> list[str] | None:
        """Return the class names of a column of numbers, if the library recorded them."""
        described = (self._schemas[split].metadata or {}).get(b"huggingface")
        if described is None:
            return None
        feature = json.loads(described).get("info", {}).get("features", {}).get(column, {})
        names = feature.get("names") if isinstance(feature, dict) else None
        return list(names) if names else None

    def fingerprint(self) -> str:
        """Return a hash of the names, the sizes and the ends of all files."""
        digest = hashlib.sha256()
        for split, files in sorted(self.files.items()):
            for file in files:
                path = self.root / file
                digest.update(f"{split}\0{file}\0{path.stat().st_size}\0{ends(path)}\n".encode())
        return digest.hexdigest()

    def _column(self, file: str, column: str) -> pa.ChunkedArray:
        return self._try(file, lambda path: table_cells.column(path, column))

    def _try(self, file: str, function: Callable[[Path], _T]) -> _T:
        try:
            return function(self.root / file)
        except (*_UNREADABLE, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UserError(
                f"{self.pipeline}: {self.root / file} is damaged or missing ({reason}); save the set again"
            ) from None

    def _shards_by_split(self) -> dict[str, list[str]]:
        if (self.root / _DATASET_DICT).is_file():
            splits = self._json(_DATASET_DICT).get("splits", [])
            return {split: list(self._saved(f"{split}/")) for split in splits}
        if (self.root / _STATE).is_file():
            return {self._json(_STATE).get("_split") or "train": list(self._saved(""))}
        return self._shards()

    def _saved(self, below: str) -> Iterator[str]:
        """Yield the files that one split of `save_to_disk` lists."""
        for entry in self._json(f"{below}{_STATE}").get("_data_files", []):
            if not (self.root / below / entry["filename"]).is_file():
                raise UserError(f"{self.pipeline}: {below}{entry['filename']} is missing in {self.root}")
            yield f"{below}{entry['filename']}"

    def _json(self, file: str) -> dict[str, Any]:
        try:
            return json.loads((self.root / file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(f"{self.pipeline}: {self.root / file} cannot be read ({error}); save it again") from None

    def _shards(self) -> dict[str, list[str]]:
        """Return split -> files, as in `train-00000-of-00002.parquet`, `mnist-train.arrow`, `train/0000.parquet`."""
        files_by_split: dict[str, dict[str, list[str]]] = {}  # split -> folder -> files
        for path in sorted((*self.root.rglob("*.arrow"), *self.root.rglob("*.parquet"))):
            name = path.relative_to(self.root)
            if path.name.startswith(("cache-", "tmp")) or any(part.startswith(".") for part in name.parts):
                continue
            stem = _SHARD.sub("", path.stem)
            split = path.parent.name if stem.isdigit() else stem.rpartition("-")[2]
            files_by_split.setdefault(split, {}).setdefault(name.parent.as_posix(), []).append(name.as_posix())

        for split, folders in files_by_split.items():
            if len(folders) > 1:
                several = ", ".join(sorted(folders))
                raise UserError(f"{self.pipeline}: {self.root} has {split} in {several}; pass the folder of one set")
            for files in folders.values():
                self._check_count(files)

        return {split: files for split, folders in files_by_split.items() for files in folders.values()}

    def _check_count(self, files: Sequence[str]) -> None:
        matches = [_SHARD.search(Path(file).stem) for file in files]
        announced = {int(match[2]) for match in matches if match}
        if announced and announced != {len(files)}:
            raise UserError(
                f"{self.pipeline}: {self.root} has {len(files)} of {max(announced)} files like {files[0]}; "
                "fetch the others"
            )


def load_hub(pipeline: str, source: str) -> Path:
    """Return the folder of `hf:NAME`, `hf:NAME:CONFIG` or `hf:NAME@REVISION`, from the library's cache or the hub."""
    match = _NAME.fullmatch(source.removeprefix(HUB))
    if match is None:
        raise UserError(f"{pipeline}: --source {source} should be hf:NAME, hf:NAME:CONFIG or hf:NAME@REVISION")

    import datasets

    datasets.disable_progress_bars()
    try:
        with _within_reach():
            loaded = datasets.load_dataset(match["name"], match["config"], revision=match["revision"])
        files = [Path(file["filename"]) for split in loaded.values() for file in split.cache_files]
    except Exception as error:  # the library, the hub's client and the network each have their own
        reason = next(iter(str(error).splitlines()), "").rstrip(" .:") or type(error).__name__
        raise UserError(
            f"{pipeline}: {source} cannot be loaded ({reason}); check name and network, "
            "or pass --source FOLDER with what `save_to_disk` wrote elsewhere"
        ) from None

    folders = {file.parent for file in files}
    if len(folders) != 1:
        raise UserError(f"{pipeline}: {source} lies in {len(folders)} folders; save it with `save_to_disk` first")
    return folders.pop()


@contextmanager
def _within_reach() -> Iterator[None]:
    """Restrict the hub's client to its cache if the hub does not answer, so that it fails at once."""
    import datasets
    from huggingface_hub import constants

    previous = constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE
    if not any(previous) and not urllib.request.getproxies() and not _answers(constants.ENDPOINT):
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True

    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = previous


def _answers(address: str) -> bool:
    parts = urllib.parse.urlsplit(address)
    try:
        port = parts.port or (80 if parts.scheme == "http" else 443)
        socket.create_connection((parts.hostname or "", port), timeout=_TIMEOUT_SECONDS).close()
    except OSError:
        return False
    return True
