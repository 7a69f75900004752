"""Features of pictures by a frozen backbone, computed by actors a few pictures at a time and kept in a cache."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines._images.backbones import Backbone, framed, threads_kept
from pipelines._images.pixels import BadImage
from pipelines._sources.file_store import File, Unreadable, location_text, read_file
from pipelines.contract import PrepareContext

Pictures = Sequence[tuple[str, File]]  # (name, file)
AT_ONCE = 32  # pictures in one batch of the network; another number may change the last bits of features
_BLOCKS = 256  # approximate number of blocks of a large set, for the progress display
_MAX_BATCHES = 16  # batches of AT_ONCE pictures in a block at most


@dataclass(frozen=True)
class Features:
    """The features of some pictures.

    Attributes:
        values: float32 [N, D]; zeros for pictures that cannot be used.
        enlarged: Mask [N] of pictures that were smaller than the network's input.
        problems: (name, problem) of pictures that cannot be used.
        bad: Mask [N] of pictures that cannot be used.
    """

    values: np.ndarray
    enlarged: np.ndarray
    problems: list[tuple[str, str]]
    bad: np.ndarray


class Extract:
    """Function of an actor, which holds the network: locations of pictures below `root` -> their features.

    The result has `features`, `enlarged`, and `wrong`, the problem of each picture that cannot be used.
    """

    def __init__(self, backbone: Backbone, root: str) -> None:
        self._backbone, self._root, self._network = backbone, root, backbone.build()

    def __call__(self, table: pa.Table) -> pa.Table:
        parts = [self._some(table.slice(start, AT_ONCE)) for start in range(0, len(table), AT_ONCE)]
        return pa.concat_tables(parts)

    def _some(self, table: pa.Table) -> pa.Table:
        size = self._backbone.image_size
        pixels = np.zeros((len(table), 3, size, size), np.uint8)
        enlarged, wrong = np.zeros(len(table), bool), [""] * len(table)
        for row, location in enumerate(table["location"].to_pylist()):
            try:
                pixels[row], enlarged[row] = framed(read_file(self._root, location), size, self._backbone.frame)
            except (BadImage, Unreadable) as error:
                wrong[row] = str(error)

        values = self._network(pixels)
        values[[bool(text) for text in wrong]] = 0
        features = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(values).ravel(), values.shape[1])
        return pa.table({"features": features, "enlarged": enlarged, "wrong": pa.array(wrong, pa.string())})


def picture_features(
    root: Path, sets: Mapping[str, Pictures], backbone: Backbone, context: PrepareContext, actors: int | None = None
) -> dict[str, Features]:
    """Return the features of each set of pictures.

    With `work.cache` the features of a set are kept there under a key of its pictures' names, sizes and checksums and
    of the backbone.

    Args:
        root: Folder of the pictures.
        sets: Name -> pictures.
        backbone: The frozen network.
        context: The settings of the preparation; without `skip_bad` the first bad picture raises `UserError`.
        actors: Number of actors at most; None: one for every core.
    """
    keys = {name: _key(pictures, backbone) for name, pictures in sets.items()}
    cache_paths = (
        {} if context.cache is None else {name: context.cache / f"{key}.parquet" for name, key in keys.items()}
    )
    tables = {name: _read_cached(path, len(sets[name])) for name, path in cache_paths.items()}

    missing = {name: pictures for name, pictures in sets.items() if tables.get(name) is None}
    for name, table in _extracted(root, missing, backbone, context, actors):
        tables[name] = table
        if name in cache_paths and not any(table["wrong"].to_pylist()):
            _write(cache_paths[name], table)

    return {name: _features(sets[name], table) for name, table in tables.items() if table is not None}


def _features(pictures: Pictures, table: pa.Table) -> Features:
    column = table["features"].combine_chunks()
    wrong = table["wrong"].to_pylist()
    return Features(
        column.flatten().to_numpy().reshape(len(column), column.type.list_size),
        table["enlarged"].to_numpy(),
        [(location_text(file.location), text) for (_, file), text in zip(pictures, wrong, strict=True) if text],
        np.array([bool(text) for text in wrong], bool),
    )


def _extracted(
    root: Path, sets: Mapping[str, Pictures], backbone: Backbone, context: PrepareContext, actors: int | None
) -> Iterator[tuple[str, pa.Table]]:
    """Yield each set when it is done; the same actors serve all sets, and no block mixes two sets."""
    if not sets:
        return

    backbone.build()  # raises in this process if something is wrong with it

    blocks = {name: _blocks(pictures) for name, pictures in sets.items()}
    pictures_done, total, stage = 0, sum(map(len, sets.values())), f"features of {backbone.name}"
    context.progress(stage, 0, total)

    tables = [table for set_blocks in blocks.values() for table in set_blocks]

    with threads_kept(), closing(context.held(Extract, (backbone, str(root)), tables, actors)) as results:
        for name, set_blocks in blocks.items():
            parts = []
            for block, part in zip(set_blocks, results, strict=False):
                parts.append(part)
                texts = part["wrong"].to_pylist()
                bad_row = next((row for row, text in enumerate(texts) if text), None)
                if bad_row is not None and not context.skip_bad:
                    context.settle([(location_text(block["location"][bad_row].as_py()), texts[bad_row])], "images")
                pictures_done += len(part)
                context.progress(stage, pictures_done, total)
            yield name, pa.concat_tables(parts)


def _blocks(pictures: Pictures) -> list[pa.Table]:
    table = pa.table({"location": pa.array([file.location for _, file in pictures], pa.string())})
    rows = AT_ONCE * max(1, min(_MAX_BATCHES, len(pictures) // (AT_ONCE * _BLOCKS)))
    return [table.slice(start, rows) for start in range(0, len(table), rows)]


def _key(pictures: Pictures, backbone: Backbone) -> str:
    digest = hashlib.sha256(json.dumps([backbone.identity, AT_ONCE], sort_keys=True).encode())
    for name, file in pictures:
        digest.update(f"{name}\0{file.bytes}\0{file.checksum}\n".encode())
    return digest.hexdigest()[:32]


def _read_cached(path: Path, rows: int) -> pa.Table | None:
    """Return the cached features, or None if they are missing or incomplete."""
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowInvalid):
        return None
    return table if len(table) == rows else None


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}-") as folder:
        pq.write_table(table, Path(folder, path.name), compression="zstd", use_dictionary=False, write_statistics=False)
        Path(folder, path.name).replace(path)
