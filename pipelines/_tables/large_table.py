"""Tables with several targets in each row that are too large for one process: inputs are read part by part.

Tasks of Ray Data, or threads, pass over the parts of the file. The first pass finds types and bad cells, the second
fetches the columns with another role than input, the third sums up the inputs over the training rows; the last one
converts and writes shards. One process only holds targets, ids and splits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, UNKNOWN_CATEGORY
from mtlscale.data.format.table_columns import TableColumn
from pipelines._formats.table_file import ROW
from pipelines._formats.text_files import Problems
from pipelines._steps.features import lists, scaling
from pipelines._steps.map_jobs import results_of
from pipelines._tables.column_sums import ColumnSums, sums_of
from pipelines._tables.inputs import mostly_numbers, problem_in_numbers, text_numbers
from pipelines._tables.shared_table import SharedTable, UsableRows
from pipelines._tables.suspicions import perfect_predictors
from pipelines._tables.table_parts import RawPart, TablePart, TableParts, check_encoding, common_type
from pipelines._tables.targets import Target
from pipelines.contract import ComputedRows, PrepareContext, Prepared

_SAMPLE = 256  # training rows of each part in which columns that give a target away are looked for


@dataclass(frozen=True)
class PartJob:
    """The part of the file with the number of its first row, and those of its rows that are training rows."""

    part: TablePart
    first: int = 0
    train: np.ndarray | None = None


@dataclass(frozen=True)
class _Done:
    job: int
    result: Any


@dataclass(frozen=True)
class PartSummary:
    """The findings of the first pass in a part.

    Attributes:
        raw: The part without its rows.
        rows: Number of its rows, bad ones included.
        types: Column -> the type that its cells suggest.
        texts: Column of texts -> (number of texts, (row, text) of those that are no numbers); None: plainly texts.
        present: Column -> number of cells with a value.
        infinite: Column -> rows with an infinite number.
    """

    raw: RawPart
    rows: int
    types: dict[str, pa.DataType]
    texts: dict[str, tuple[int, list[tuple[int, str]]] | None]
    present: dict[str, int]
    infinite: dict[str, list[int]]

    def numbers_among_texts(self, name: str) -> tuple[int, list[tuple[int, str]]] | None:
        """Return the entry of `texts` for a column that has texts in other parts."""
        kind = self.types[name]
        if pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return self.present[name], []
        return self.texts.get(name)


@dataclass(frozen=True)
class PartReader:
    """Function from a part, and the number of its first row, to its rows, with their numbers in the column `ROW`."""

    parts: TableParts
    number_texts: frozenset[str] = frozenset()  # columns of texts that are numbers

    def __call__(self, part: TablePart, first: int, columns: tuple[str, ...]) -> pa.Table:
        raw = self.parts.read(part, columns)
        table = raw.table
        for name in self.number_texts.intersection(columns):
            parsed = text_numbers(table[name], gives_up=False)
            assert parsed is not None
            table = table.set_column(table.column_names.index(name), name, parsed[0])
        return table.append_column(ROW, pa.array(np.array(raw.numbers, np.int64) + first))


def large_table(shared: SharedTable, parts: TableParts, context: PrepareContext) -> Prepared:
    """Return the data set of a table that is read in parts, nothing converted yet.

    Args:
        shared: The options.
        parts: The file.
        context: The settings of the preparation.
    """
    roles = shared.roles(parts.columns)
    summaries = _each(partial(_summary, parts), [PartJob(part) for part in parts.parts], context, "read")
    firsts = np.cumsum([0, *(summary.rows for summary in summaries)])
    lines = [summary.raw.lines for summary in summaries if summary.raw.lines is not None]
    notes = check_encoding(parts.path.name, lines, int(parts.header))
    if not parts.types:
        kinds = [common_type(summary.types[name] for summary in summaries) for name in parts.columns]
        parts = replace(parts, types=tuple(kinds))

    names = shared.inputs.names(parts.schema.empty_table(), roles)
    problems = [(f"row {firsts[number] + row + 1}", problem) for number, summary in enumerate(summaries)
                for row, problem in summary.raw.bad_rows.items()]  # fmt: skip
    bad_cells: Problems = []
    number_texts = _bad_inputs(shared, parts, names, summaries, firsts, bad_cells)
    reader = PartReader(parts, frozenset(number_texts))
    jobs = [PartJob(part, int(first)) for part, first in zip(parts.parts, firsts[:-1], strict=True)]

    tables = _each(partial(_columns_of, reader, tuple(dict.fromkeys(roles))), jobs, context, "targets")
    rows = shared.usable(pa.concat_tables(tables), bad_cells, problems, notes, context)
    del tables
    numbers = rows.table[ROW].to_numpy()
    train = np.sort(numbers[rows.splits["train"]])
    bounds = np.searchsorted(train, firsts)
    jobs = [
        replace(job, train=train[start:stop]) for job, start, stop in zip(jobs, bounds[:-1], bounds[1:], strict=True)
    ]
    totals, sample = _totals(shared, reader, names, jobs, context)
    return _prepared(shared, reader, jobs, rows, totals, sample, notes)


def _each(
    function: Callable[[PartJob], Any], jobs: Sequence[PartJob], context: PrepareContext, stage: str
) -> list[Any]:
    """Return the result of each job, in their order."""
    results: list[Any] = [None] * len(jobs)
    numbered = list(enumerate(jobs))
    with closing(results_of(partial(_numbered, function), numbered, context.engine, lambda: True)) as finished:
        for count, done in enumerate(finished, start=1):
            results[done.job] = done.result
            context.progress(stage, count, len(jobs))
    return results


def _numbered(function: Callable[[PartJob], Any], job: tuple[int, PartJob]) -> _Done:
    return _Done(job[0], function(job[1]))


def _summary(parts: TableParts, job: PartJob) -> PartSummary:
    raw = parts.read(job.part)
    texts: dict[str, tuple[int, list[tuple[int, str]]] | None] = {}
    infinite, numbers = {}, raw.numbers
    for name, column in zip(raw.table.column_names, raw.table.columns, strict=True):
        if pa.types.is_floating(column.type):
            rows = np.flatnonzero(np.isinf(column.to_numpy())).tolist()
            infinite[name] = [numbers[row] for row in rows]
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            parsed = text_numbers(column)
            wrong = [(numbers[row], column[row].as_py()) for row in parsed[1]] if parsed else []
            texts[name] = (parsed[2], wrong) if parsed else None

    table = raw.table
    present = {name: len(table) - table[name].null_count for name in table.column_names}
    types = {field.name: field.type for field in table.schema}
    without_rows = replace(raw, table=table.schema.empty_table())
    return PartSummary(without_rows, len(table) + len(raw.bad_rows), types, texts, present, infinite)


def _bad_inputs(
    shared: SharedTable,
    parts: TableParts,
    names: Sequence[str],
    summaries: Sequence[PartSummary],
    firsts: np.ndarray,
    bad_cells: Problems,
) -> list[str]:
    """Return the inputs of texts that are numbers; bad cells of inputs are added to `bad_cells`."""
    number_texts = []
    for name in names:
        if name in shared.inputs.categorical:
            continue
        for first, summary in zip(firsts, summaries, strict=False):
            bad_cells += [
                (f"row {first + row + 1}", f"is infinite in {name}") for row in summary.infinite.get(name, ())
            ]
        kind = parts.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            continue

        wrong, count = [], 0
        for first, summary in zip(firsts, summaries, strict=False):
            texts = summary.numbers_among_texts(name)
            if texts is None:
                break
            wrong += [(int(first) + row, text) for row, text in texts[1]]
            count += texts[0]
        else:
            if not mostly_numbers(len(wrong), count):
                continue
            number_texts.append(name)
            bad_cells += [(f"row {row + 1}", problem_in_numbers(name, text)) for row, text in wrong]
    return number_texts


def _columns_of(reader: PartReader, columns: tuple[str, ...], job: PartJob) -> pa.Table:
    return reader(job.part, job.first, columns)


@dataclass(frozen=True)
class _PartSums:
    sums: dict[str, ColumnSums]
    sample: pa.Table


def _sums(shared: SharedTable, reader: PartReader, names: tuple[str, ...], job: PartJob) -> _PartSums:
    table = reader(job.part, job.first, names)
    assert job.train is not None
    train = np.searchsorted(table[ROW].to_numpy(), job.train)
    sums = {
        name: sums_of(table[name], train, shared.inputs.kind(name, table[name].type), shared.inputs.most_categories)
        for name in names
    }
    return _PartSums(sums, table.take(pa.array(train[:_SAMPLE])))


def _totals(
    shared: SharedTable, reader: PartReader, names: Sequence[str], jobs: Sequence[PartJob], context: PrepareContext
) -> tuple[dict[str, ColumnSums], pa.Table]:
    """Return the sums of each input over all training rows, and some of the rows."""
    with_rows = [job for job in jobs if job.train is not None and len(job.train)]
    by_part = _each(partial(_sums, shared, reader, tuple(names)), with_rows, context, "statistics")
    totals = {}
    for name in names:
        total = by_part[0].sums[name]
        for part in by_part[1:]:
            total = total.merged(part.sums[name])
        totals[name] = total
    return totals, pa.concat_tables([part.sample for part in by_part])


def _prepared(
    shared: SharedTable,
    reader: PartReader,
    jobs: Sequence[PartJob],
    rows: UsableRows,
    totals: dict[str, ColumnSums],
    sample: pa.Table,
    notes: dict[str, Any],
) -> Prepared:
    names = shared.varying(list(totals), [name for name, total in totals.items() if total.constant], notes)
    columns = tuple(totals[name].fitted(name, shared.inputs.most_categories, shared.inputs.buckets) for name in names)
    notes["features"] = [column.name for column in columns]
    notes["columns"] = [column.as_json() for column in columns]
    hashed = {column.name: totals[column.name].distinct for column in columns if column.kind == "hash"}
    if hashed:
        notes["hashed_categories"] = hashed
    if given_away := _given_away(sample.select(names), sample[ROW].to_numpy(), rows):
        notes["perfect_predictors"] = given_away

    suite, labels = shared.suite(rows, columns)
    scales = [totals[column.name].scale(column) for column in columns]
    means, deviations = (list(chain.from_iterable(scale[part] for scale in scales)) for part in (0, 1))
    if shared.standardise and not all(column.kind in ("category", "hash") for column in columns):
        notes["standardised"] = scaling(means, deviations)
    else:
        means, deviations = [0.0] * len(means), [1.0] * len(deviations)

    locations = tuple(replace(job, train=None) for job in jobs)
    convert = ConvertRows(reader, locations, columns, tuple(means), tuple(deviations))
    everything = pa.table(
        {
            "id": pa.array(rows.ids, pa.string()),
            ROW: rows.table[ROW].combine_chunks(),
            **{name: pa.array(values) for name, values in shared.label_columns(rows, labels).items()},
        }
    )
    index = {split: everything.take(pa.array(np.sort(rows.splits[split]))) for split in SPLITS}
    return Prepared(suite, {}, notes=notes, pieces=LargeTable(index, convert, 4 * suite.input_shape[0]))


def _given_away(sample: pa.Table, numbers: np.ndarray, rows: UsableRows) -> dict[str, str]:
    """Return input -> target that it gives away without an error in a sample of the training rows."""
    positions = np.searchsorted(rows.table[ROW].to_numpy(), numbers)
    targets = [Target(target.column, target.kind, target.values[positions]) for target in rows.targets]
    columns = {name: sample[name] for name in sample.column_names}
    return perfect_predictors(columns, targets, np.arange(len(positions)))


@dataclass(frozen=True)
class ConvertRows:
    """Function from rows of the index to samples, with counts of unseen categories and hashes of inputs."""

    reader: PartReader
    jobs: tuple[PartJob, ...]
    columns: tuple[TableColumn, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, table: pa.Table) -> ComputedRows:
        numbers = table[ROW].to_numpy()
        bounds = np.searchsorted(numbers, [job.first for job in self.jobs[1:]])
        pieces = []
        for job, wanted in zip(self.jobs, np.split(numbers, bounds), strict=True):
            if len(wanted):
                rows, part = _converted(self.reader, job.part, job.first, self.columns, self.mean, self.deviation)
                pieces.append(part[np.searchsorted(rows, wanted)])

        inputs = np.concatenate(pieces)
        unseen, position = {}, 0
        for column in self.columns:
            if column.kind == "category":  # codes are not scaled
                unseen[column.name] = int((inputs[:, position] == UNKNOWN_CATEGORY).sum())
            position += len(column.counts)
        digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in inputs)
        result = table.drop_columns([ROW]).add_column(1, "input", lists(inputs))
        return ComputedRows(result, told=(unseen, np.frombuffer(digests, np.uint64)))


@lru_cache(maxsize=8)  # the shards of all splits ask for rows of the same parts
def _converted(
    reader: PartReader,
    part: TablePart,
    first: int,
    columns: tuple[TableColumn, ...],
    mean: tuple[float, ...],
    deviation: tuple[float, ...],
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers [N] of the rows of a part and their inputs [N, D]."""
    table = reader(part, first, tuple(column.name for column in columns))
    inputs = np.column_stack([column.encode(table[column.name]) for column in columns])
    return table[ROW].to_numpy(), ((inputs - mean) / deviation).astype(np.float32)


@dataclass(frozen=True)
class LargeTable:
    """The rows of a large table: `ShardedTable` of `pipelines.contract`."""

    index: dict[str, pa.Table]
    compute: ConvertRows
    row_bytes: int
    what: str = "row"

    def finish(
        self, told: list[tuple[str, Any]], problems: list[tuple[str, str]]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return notes on categories that training does not have, and on test inputs that it has."""
        unseen: dict[str, int] = {}
        for _, (counts, _) in told:
            for name, count in counts.items():
                unseen[name] = unseen.get(name, 0) + count
        hashes = {is_test: [part for split, (_, part) in told if (split == "test") == is_test]
                  for is_test in (True, False)}  # fmt: skip
        repeated = int(np.isin(np.concatenate(hashes[True]), np.concatenate(hashes[False])).sum())

        notes: dict[str, Any] = {}
        if unseen := {name: count for name, count in unseen.items() if count}:
            notes["unknown_categories"] = unseen
        if repeated:
            notes["test_inputs_in_train_or_val"] = {"all": repeated}
        return {}, notes
