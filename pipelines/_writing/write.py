"""Writer of a prepared data set: the same tables give the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mtlscale.config import SPLITS, Task, UserError, source_hash
from mtlscale.data.format.columns import RAGGED, kind_of
from mtlscale.data.format.manifest import FORMATS, MANIFEST, FileEntry, Manifest, SourceInfo
from mtlscale.data.remote import sha256_of
from pipelines._steps.checks import check_tables
from pipelines._steps.suite import check_prepared
from pipelines._writing.write_pieces import write_pieces
from pipelines.contract import Pipeline, PrepareContext, Prepared, ShardedTable

VOCABULARY = "vocabulary.txt"


def write_prepared(
    out: Path, pipeline: Pipeline, source: SourceInfo, prepared: Prepared, context: PrepareContext | None = None
) -> Manifest:
    """Write the tables, the vocabulary and, last, the manifest into the existing folder `out`."""
    check_prepared(pipeline.name, prepared)
    if prepared.pieces is not None:
        return _write_streamed(out, pipeline, source, prepared, prepared.pieces, context or PrepareContext())

    suite = prepared.suite
    tables = {
        split: {stream: _sorted(pipeline.name, prepared.tables[split][stream]) for stream in suite.streams}
        for split in SPLITS
    }

    check_tables(suite, tables)
    _check_disjoint(pipeline.name, tables)

    counts, class_counts = {}, {}
    for stream, tasks in suite.streams.items():
        for task in (task for task in suite.tasks if task.name in tasks):
            targets = {split: tables[split][stream][f"target.{task.name}"] for split in SPLITS}
            counts[task.name] = {split: _labelled(column) for split, column in targets.items()}
            if task.name not in prepared.target_shapes and pa.types.is_integer(targets["train"].type):
                class_counts[task.name] = {split: _classes(task, column) for split, column in targets.items()}
    _check_counts(pipeline.name, counts, class_counts)

    files = [
        _write_table(out, f"{split}/{stream}.parquet", table)
        for split, streams in tables.items()
        for stream, table in streams.items()
    ]
    files += [_write_table(out, name, _sorted(pipeline.name, table)) for name, table in prepared.extra.items()]
    if prepared.vocabulary is not None:
        (out / VOCABULARY).write_text("".join(f"{word}\n" for word in prepared.vocabulary), encoding="utf-8")
        files.append(_entry(out, VOCABULARY, len(prepared.vocabulary)))

    types = {name: kind for streams in tables.values() for table in streams.values() for name, kind in _types(table)}
    format_version = FORMATS[RAGGED in types.values()]
    return _write_manifest(out, pipeline, source, prepared, files, counts, class_counts, types, format_version)


def _write_streamed(
    out: Path, pipeline: Pipeline, source: SourceInfo, prepared: Prepared, pieces: ShardedTable, context: PrepareContext
) -> Manifest:
    """Write a set that is computed piece by piece, with the extras and notes that this yields."""
    result = write_pieces(out, pipeline.name, prepared.suite, pieces, context)
    _check_counts(pipeline.name, result.counts, result.class_counts)

    prepared = replace(
        prepared,
        suite=replace(prepared.suite, extras={**prepared.suite.extras, **result.extras}),
        notes={**prepared.notes, **result.notes},
    )

    counts = (result.counts, result.class_counts)
    return _write_manifest(out, pipeline, source, prepared, result.files, *counts, result.types, FORMATS[1])


def _write_manifest(
    out: Path,
    pipeline: Pipeline,
    source: SourceInfo,
    prepared: Prepared,
    files: list[FileEntry],
    counts: dict[str, dict[str, int]],
    class_counts: dict[str, dict[str, dict[str, int]]],
    types: dict[str, str],
    format: int = FORMATS[0],
) -> Manifest:
    manifest = Manifest(
        format=format,
        name=pipeline.name,
        results_version=pipeline.results_version,
        plugin=source_hash(type(pipeline)),
        options=pipeline.options(),
        source=source,
        fingerprint=hashlib.sha256("".join(f"{f.path}\0{f.sha256}\n" for f in files).encode()).hexdigest(),
        suite=prepared.suite,
        target_shapes=prepared.target_shapes,
        types=types,
        counts=counts,
        class_counts=class_counts,
        files=files,
        vocabulary=VOCABULARY if prepared.vocabulary is not None else None,
        notes=prepared.notes,
    )

    (out / MANIFEST).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return manifest


def _types(table: pa.Table) -> Iterator[tuple[str, str]]:
    for column in table.schema:
        if column.name != "id":
            yield column.name, RAGGED if pa.types.is_large_binary(column.type) else kind_of(column, {})[0].name


def _sorted(name: str, table: pa.Table) -> pa.Table:
    """Return the table sorted by id, which must be unique: the order must not depend on the engine."""
    table = table.sort_by("id").combine_chunks()
    if len(pc.unique(table["id"])) < len(table):
        counted = pc.value_counts(table["id"])
        twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))[0]
        raise UserError(f"{name}: the source has two samples named {twice}; remove one")
    return table


def _check_disjoint(name: str, tables: dict[str, dict[str, pa.Table]]) -> None:
    """Raise `UserError` if an id occurs in two splits, whatever its stream."""
    split_of_id: dict[str, str] = {}
    for split, streams in tables.items():
        for table in streams.values():
            for id in table["id"].to_pylist():
                if split_of_id.setdefault(id, split) != split:
                    raise UserError(
                        f"{name}: sample {id} is in {split_of_id[id]} and in {split}; each belongs to one split"
                    )


def _labelled(column: pa.ChunkedArray) -> int:
    if pa.types.is_integer(column.type):
        return pc.sum(pc.greater_equal(column, 0)).as_py() or 0
    if pa.types.is_floating(column.type):
        return pc.sum(pc.invert(pc.is_nan(column))).as_py() or 0
    return len(column)


def _classes(task: Task, column: pa.ChunkedArray) -> dict[str, int]:
    values = column.to_numpy()
    counted = np.bincount(values[values >= 0], minlength=max(task.outputs, len(task.classes)))
    names = task.classes or tuple(str(label) for label in range(len(counted)))
    return {name: int(count) for name, count in zip(names, counted, strict=True)}


def _check_counts(
    name: str, counts: dict[str, dict[str, int]], class_counts: dict[str, dict[str, dict[str, int]]]
) -> None:
    """Raise `UserError` for an empty class or split now: training's message would say less."""
    for task, splits in class_counts.items():
        for label, count in splits["train"].items():
            if count == 0:
                raise UserError(f"{name}: class {label} of task {task} is empty: it has no training sample")

    for task, by_split in counts.items():
        for split, count in by_split.items():
            if count == 0:
                raise UserError(f"{name}: task {task} has no sample in {split}; the source is too small to split")


def _write_table(out: Path, path: str, table: pa.Table) -> FileEntry:
    (out / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        table, out / path, compression="zstd", compression_level=3, use_dictionary=False, write_statistics=False
    )
    return _entry(out, path, len(table))


def _entry(out: Path, path: str, rows: int) -> FileEntry:
    return FileEntry(path=path, bytes=(out / path).stat().st_size, rows=rows, sha256=sha256_of(out / path))
