"""Pictures to the features of a frozen backbone: actors that hold it, a few pictures at a time, kept for whoever asks
again."""

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

from pipelines._backbones import Backbone, framed, threads_kept
from pipelines._base import Work
from pipelines._pixels import BadImage
from pipelines._store import File, Unreadable, read_file, shown

Pictures = Sequence[tuple[str, File]]  # by name
AT_ONCE = 32  # pictures that the network sees together; another number may change the last bits of features
_BLOCKS = 256  # about so many blocks of a large set, so that what is done is known
_MOST = 16  # times AT_ONCE pictures in a block


@dataclass(frozen=True)
class Features:
    """Of some pictures: float32 [N, D]; which of them were smaller than what the network sees; which cannot be used, as
    (name, problem), with rows of zeros."""

    values: np.ndarray
    enlarged: np.ndarray
    problems: list[tuple[str, str]]
    bad: np.ndarray


class Extract:
    """Locations of pictures below `root` -> their features, `enlarged`, and what is `wrong` with them: the function of
    an actor, which holds the network."""

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
        found = self._network(pixels)
        found[[bool(text) for text in wrong]] = 0
        features = pa.FixedSizeListArray.from_arrays(np.ascontiguousarray(found).ravel(), found.shape[1])
        return pa.table({"features": features, "enlarged": enlarged, "wrong": pa.array(wrong, pa.string())})


def picture_features(
    root: Path, sets: Mapping[str, Pictures], backbone: Backbone, work: Work, actors: int | None = None
) -> dict[str, Features]:
    """Of sets of pictures, by their names. The first picture that cannot be used ends it, unless bad ones are skipped.

    With `work.cache` the features of a set are kept there, known by its pictures' names, sizes and checksums and by the
    backbone. actors: at most so many; None: one for every core.
    """
    keys = {name: _key(pictures, backbone) for name, pictures in sets.items()}
    kept = {} if work.cache is None else {name: work.cache / f"{key}.parquet" for name, key in keys.items()}
    found = {name: _read(path, len(sets[name])) for name, path in kept.items()}
    missing = {name: pictures for name, pictures in sets.items() if found.get(name) is None}
    for name, table in _extracted(root, missing, backbone, work, actors):
        found[name] = table
        if name in kept and not any(table["wrong"].to_pylist()):
            _write(kept[name], table)
    return {name: _features(sets[name], table) for name, table in found.items() if table is not None}


def _features(pictures: Pictures, table: pa.Table) -> Features:
    column = table["features"].combine_chunks()
    wrong = table["wrong"].to_pylist()
    return Features(
        column.flatten().to_numpy().reshape(len(column), column.type.list_size),
        table["enlarged"].to_numpy(),
        [(shown(file.location), text) for (_, file), text in zip(pictures, wrong, strict=True) if text],
        np.array([bool(text) for text in wrong], bool),
    )


def _extracted(
    root: Path, sets: Mapping[str, Pictures], backbone: Backbone, work: Work, actors: int | None
) -> Iterator[tuple[str, pa.Table]]:
    """Each set as it is done; all by the same actors, and no set's pictures together with another's."""
    if not sets:
        return
    backbone.build()  # says here what is wrong with it
    blocks = {name: _blocks(pictures) for name, pictures in sets.items()}
    done, total, stage = 0, sum(map(len, sets.values())), f"features of {backbone.name}"
    work.progress(stage, 0, total)
    tables = [table for of_set in blocks.values() for table in of_set]
    with threads_kept(), closing(work.held(Extract, (backbone, str(root)), tables, actors)) as results:
        for name, of_set in blocks.items():
            parts = []
            for block, part in zip(of_set, results, strict=False):
                parts.append(part)
                texts = part["wrong"].to_pylist()
                wrong = next((row for row, text in enumerate(texts) if text), None)
                if wrong is not None and not work.skip_bad:
                    work.settle([(shown(block["location"][wrong].as_py()), texts[wrong])], "images")
                done += len(part)
                work.progress(stage, done, total)
            yield name, pa.concat_tables(parts)


def _blocks(pictures: Pictures) -> list[pa.Table]:
    table = pa.table({"location": pa.array([file.location for _, file in pictures], pa.string())})
    rows = AT_ONCE * max(1, min(_MOST, len(pictures) // (AT_ONCE * _BLOCKS)))
    return [table.slice(start, rows) for start in range(0, len(table), rows)]


def _key(pictures: Pictures, backbone: Backbone) -> str:
    digest = hashlib.sha256(json.dumps([backbone.known, AT_ONCE], sort_keys=True).encode())
    for name, file in pictures:
        digest.update(f"{name}\0{file.bytes}\0{file.checksum}\n".encode())
    return digest.hexdigest()[:32]


def _read(path: Path, rows: int) -> pa.Table | None:
    """What was kept, where it is whole."""
    try:
        found = pq.read_table(path)
    except (OSError, pa.ArrowInvalid):
        return None
    return found if len(found) == rows else None


def _write(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}-") as folder:
        pq.write_table(table, Path(folder, path.name), compression="zstd", use_dictionary=False, write_statistics=False)
        Path(folder, path.name).replace(path)
