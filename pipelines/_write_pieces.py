"""Writing a set that is computed piece by piece: shards by many tasks, merged here; the bytes do not depend on who
wrote them, or how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.data.manifest import FileEntry
from mtlscale.spec import SPLITS, TaskSuite, UserError
from pipelines._base import Pieces, Work
from pipelines._shards import Shard, WriteShard, Written, labels
from pipelines._tasks import each

GROUP_BYTES = 8 << 20  # of samples; the encoder takes as much again while it works
GROUP_ROWS = 8192
SHARD_BYTES = 64 << 20  # of samples
FEW, LEAST = 32, 1 << 20  # a small set is cut into about so many shards, of so many bytes at least


@dataclass
class Result:
    """What was written: the files, samples per task and split, and per class, and what the manifest and the suite
    gain."""

    files: list[FileEntry]
    types: dict[str, str]
    counts: dict[str, dict[str, int]]
    class_counts: dict[str, dict[str, dict[str, int]]]
    extras: dict[str, Any]
    notes: dict[str, Any]


def write_pieces(out: Path, name: str, suite: TaskSuite, pieces: Pieces, work: Work) -> Result:
    """Write `<split>/<stream>/<number>.parquet` below `out`."""
    shards = list(_cut(name, suite, pieces))
    for shard in shards:
        (out / shard.path).parent.mkdir(parents=True, exist_ok=True)
    compute = pieces.compute
    write = WriteShard(name, str(out), compute, strict=not work.skip_bad, deliver=work.deliver)
    written = dict[str, Written]()
    wrong, done, total = False, 0, sum(len(shard.rows) for shard in shards)
    work.progress("decode", 0, total)
    with closing(
        each(write, shards, work.engine, lambda: not wrong, plugins=[compute, getattr(compute, "decode", compute)])
    ) as results:
        for one in results:
            if one.wrong is not None:
                raise UserError(one.wrong)
            if one.error is not None:
                raise OSError(*one.error)
            written[one.shard] = one
            wrong = wrong or bool(one.problems and not work.skip_bad)
            if wrong:
                _stop_at_a_problem(pieces.what, [written.get(shard.path) for shard in shards])
            done += one.rows
            work.progress("decode", done, total)
    for left in out.glob("*/*/.*"):  # by tasks whose workers died
        left.unlink(missing_ok=True)
    return _merge(name, suite, pieces, [written[shard.path] for shard in shards])


def _stop_at_a_problem(what: str, written: list[Written | None]) -> None:
    """`UserError` with the first in order, as soon as it is known to be that: the same whoever was faster."""
    for one in written:
        if one is None:
            return
        if one.problems:
            name, problem = one.problems[0]
            raise UserError(f"{what} {name} {problem}; mend it, or pass --skip-bad to leave such {what}s out")


def _cut(name: str, suite: TaskSuite, pieces: Pieces) -> Iterator[Shard]:
    """Rows of the index by number alone: whoever computes them, and whichever of them can be used."""
    group = max(1, min(GROUP_ROWS, GROUP_BYTES // pieces.row_bytes))
    total = sum(len(pieces.index.get(split, ())) for split in SPLITS)
    rows = max(1, min(SHARD_BYTES // pieces.row_bytes, max(-(-total // FEW), LEAST // pieces.row_bytes)))
    split_of = dict[str, str]()
    for split in SPLITS:
        for stream, index in _streams(suite, pieces.index[split]):
            _check_ids(name, split, index["id"].to_pylist(), split_of)
            tasks = tuple(task for task in suite.tasks if task.name in suite.streams[stream])
            for number, start in enumerate(range(0, max(1, len(index)), rows)):
                # A copy: a slice would travel with the whole table.
                part = index.take(pa.array(np.arange(start, min(start + rows, len(index)))))
                yield Shard(split, f"{split}/{stream}/{number:05d}.parquet", part, min(group, rows), tasks)


def _streams(suite: TaskSuite, index: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each stream by their ids, those without labels without a column of any."""
    for stream, tasks in suite.streams.items():
        rows = index
        if "stream" in index.column_names:
            rows = index.filter(pc.field("stream") == stream).drop_columns(["stream"])
        others = {f"target.{task.name}" for task in suite.tasks if task.name not in tasks}
        yield stream, rows.drop_columns(sorted(others & set(rows.column_names))).sort_by("id").combine_chunks()


def _check_ids(name: str, split: str, ids: list[str], split_of: dict[str, str]) -> None:
    for before, id in zip(["", *ids], ids, strict=False):
        if id == before:
            raise UserError(f"{name}: the source has two samples named {id}; remove one")
        if split_of.setdefault(id, split) != split:
            raise UserError(f"{name}: sample {id} is in {split_of[id]} and in {split}; each belongs to one split")


def _merge(name: str, suite: TaskSuite, pieces: Pieces, written: list[Written]) -> Result:
    used = Counter[str]()
    for one in written:
        used[one.split] += one.entry.rows if one.entry else 0
    for split in SPLITS:
        if not used[split]:
            raise UserError(f"{name}: no usable {pieces.what} is left in {split}; mend the source or use more of it")
    counts = {task.name: dict.fromkeys(SPLITS, 0) for task in suite.tasks}
    found: dict[str, dict[str, np.ndarray]] = {}
    for one in written:
        for task, count in one.samples.items():
            counts[task][one.split] += count
        for task, classes in one.classes.items():
            by_split = found.setdefault(task, {split: np.zeros(len(classes), np.int64) for split in SPLITS})
            by_split[one.split] += classes
    names = {task.name: task.classes or tuple(map(str, range(labels(task)))) for task in suite.tasks}
    class_counts = {
        task: {split: dict(zip(names[task], map(int, classes), strict=True)) for split, classes in splits.items()}
        for task, splits in found.items()
    }
    problems = [problem for one in written for problem in one.problems]
    extras, notes = pieces.finish([(one.split, told) for one in written for told in one.told], problems)
    files = [one.entry for one in written if one.entry is not None]
    types = {column: kind for one in written for column, kind in one.types.items()}
    return Result(files, types, counts, class_counts, extras, notes)
