"""Writer of a set that is computed piece by piece: shards by many tasks, merged in this process.

The bytes depend neither on the writers nor on their number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import SPLITS, TaskSuite, UserError
from mtlscale.data.format.manifest import FileEntry
from mtlscale.data.tables.table_file import ROW
from pipelines._engine.map_jobs import results_of
from pipelines._writing.shards import Shard, ShardResult, WriteShard, labels
from pipelines.contract import PrepareContext, ShardedTable

GROUP_BYTES = 8 << 20  # of samples in a row group; the encoder needs the same amount again
GROUP_ROWS = 8192
SHARD_BYTES = 64 << 20  # of samples in a shard
FEW, LEAST = 32, 1 << 20  # a small set is cut into about FEW shards of at least LEAST bytes


@dataclass
class Result:
    """The written files and the additions to the manifest.

    Attributes:
        files: The files.
        types: Column -> type of its numbers.
        counts: Task -> split -> samples with a label.
        class_counts: Task -> split -> class -> samples.
        extras: Additions to the suite's extras.
        notes: Additions to the notes.
    """

    files: list[FileEntry]
    types: dict[str, str]
    counts: dict[str, dict[str, int]]
    class_counts: dict[str, dict[str, dict[str, int]]]
    extras: dict[str, Any]
    notes: dict[str, Any]


def write_pieces(out: Path, name: str, suite: TaskSuite, pieces: ShardedTable, context: PrepareContext) -> Result:
    """Write `<split>/<stream>/<number>.parquet` below `out`."""
    shards = list(_cut(name, suite, pieces))
    for shard in shards:
        (out / shard.path).parent.mkdir(parents=True, exist_ok=True)

    compute = pieces.compute
    write = WriteShard(name, str(out), compute, strict=not context.skip_bad, deliver=context.deliver)
    written = dict[str, ShardResult]()
    stopped, rows_done, total = False, 0, sum(len(shard.rows) for shard in shards)
    bytes_written = 0
    context.progress("decode", 0, total)

    with closing(
        results_of(
            write,
            _in_order_of_the_file(shards),
            context.engine,
            lambda: not stopped,
            context.plan,
            plugins=[compute, getattr(compute, "decode", compute)],
        )
    ) as results:
        for shard_result in results:
            if shard_result.wrong is not None:
                raise UserError(shard_result.wrong)
            if shard_result.error is not None:
                raise OSError(*shard_result.error)
            written[shard_result.shard] = shard_result
            stopped = stopped or bool(shard_result.problems and not context.skip_bad)
            if stopped:
                _stop_at_a_problem(pieces.what, [written.get(shard.path) for shard in shards])
            rows_done += shard_result.rows
            bytes_written += shard_result.entry.bytes if shard_result.entry is not None else 0
            context.progress("decode", rows_done, total, bytes_written)

    for leftover in out.glob("*/*/.*"):  # of tasks whose workers died
        leftover.unlink(missing_ok=True)
    return _merge(name, suite, pieces, [written[shard.path] for shard in shards])


def _stop_at_a_problem(noun: str, results: list[ShardResult | None]) -> None:
    """Raise `UserError` with the first problem in the order of shards, whichever of them was faster."""
    for shard in results:
        if shard is None:
            return
        if shard.problems:
            name, problem = shard.problems[0]
            raise UserError(f"{noun} {name} {problem}; mend it, or pass --skip-bad to leave such {noun}s out")


def _cut(name: str, suite: TaskSuite, pieces: ShardedTable) -> Iterator[Shard]:
    """Yield the shards, cut by the index's rows alone, whichever writer there is and whichever rows are usable."""
    group = max(1, min(GROUP_ROWS, GROUP_BYTES // pieces.row_bytes))
    total = sum(len(pieces.index.get(split, ())) for split in SPLITS)
    rows = max(1, min(SHARD_BYTES // pieces.row_bytes, max(-(-total // FEW), LEAST // pieces.row_bytes)))

    ids_of = dict[str, list[pa.ChunkedArray]]()
    for split in SPLITS:
        for stream, index in _streams(suite, pieces.index[split]):
            _check_ids(name, split, index["id"], ids_of)
            tasks = tuple(task for task in suite.tasks if task.name in suite.streams[stream])
            for number, (start, stop) in enumerate(pairwise(_edges(index, rows))):
                part = index.take(pa.array(np.arange(start, stop)))  # a slice would travel with the whole table
                yield Shard(split, f"{split}/{stream}/{number:05d}.parquet", part, min(group, rows), tasks)


def _edges(index: pa.Table, rows: int) -> list[int]:
    """Return the first rows of shards, and the number of rows."""
    if ROW not in index.column_names:
        return [*range(0, max(1, len(index)), rows), len(index)]
    # Cut where the file's rows are: those of several splits are then computed from one reading.
    ranges = index[ROW].to_numpy() // rows
    return [0, *(1 + np.flatnonzero(np.diff(ranges))).tolist(), len(index)]


def _in_order_of_the_file(shards: Sequence[Shard]) -> list[Shard]:
    """Return shards of rows with numbers in their order, others as they are."""
    if not all(ROW in shard.rows.column_names and len(shard.rows) for shard in shards):
        return list(shards)
    return sorted(shards, key=lambda shard: shard.rows[ROW][0].as_py())


def _streams(suite: TaskSuite, index: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Yield each stream's rows, by row in a file or id, without the label columns of other streams' tasks."""
    order = ROW if ROW in index.column_names else "id"
    for stream, tasks in suite.streams.items():
        rows = index
        if "stream" in index.column_names:
            rows = index.filter(pc.field("stream") == stream).drop_columns(["stream"])
        unused_targets = {f"target.{task.name}" for task in suite.tasks if task.name not in tasks}
        yield stream, rows.drop_columns(sorted(unused_targets & set(rows.column_names))).sort_by(order).combine_chunks()


def _check_ids(name: str, split: str, ids: pa.ChunkedArray, ids_of: dict[str, list[pa.ChunkedArray]]) -> None:
    """Raise `UserError` for an id that is there twice, or in an earlier split; `ids_of` is extended."""
    if pc.count_distinct(ids).as_py() < len(ids):
        counted = pc.value_counts(ids)
        twice = counted.field("values").filter(pc.greater(counted.field("counts"), 1))[0]
        raise UserError(f"{name}: the source has two samples named {twice}; remove one")
    for other, streams in ids_of.items():
        for known in streams if other != split else ():
            if len(both := ids.filter(pc.is_in(ids, value_set=known))):
                raise UserError(f"{name}: sample {both[0]} is in {other} and in {split}; each belongs to one split")
    ids_of.setdefault(split, []).append(ids)


def _merge(name: str, suite: TaskSuite, pieces: ShardedTable, results: list[ShardResult]) -> Result:
    used = Counter[str]()
    for shard in results:
        used[shard.split] += shard.entry.rows if shard.entry else 0
    for split in SPLITS:
        if not used[split]:
            raise UserError(f"{name}: no usable {pieces.what} is left in {split}; mend the source or use more of it")

    counts = {task.name: dict.fromkeys(SPLITS, 0) for task in suite.tasks}

    class_totals: dict[str, dict[str, np.ndarray]] = {}
    for shard in results:
        for task, count in shard.samples.items():
            counts[task][shard.split] += count
        for task, classes in shard.classes.items():
            by_split = class_totals.setdefault(task, {split: np.zeros(len(classes), np.int64) for split in SPLITS})
            by_split[shard.split] += classes

    names = {task.name: task.classes or tuple(map(str, range(labels(task)))) for task in suite.tasks}
    class_counts = {
        task: {split: dict(zip(names[task], map(int, classes), strict=True)) for split, classes in splits.items()}
        for task, splits in class_totals.items()
    }

    problems = [problem for shard in results for problem in shard.problems]
    extras, notes = pieces.finish(
        [(shard.split, statistics) for shard in results for statistics in shard.statistics], problems
    )

    files = [shard.entry for shard in results if shard.entry is not None]
    types = {column: kind for shard in results for column, kind in shard.types.items()}
    return Result(files, types, counts, class_counts, extras, notes)
