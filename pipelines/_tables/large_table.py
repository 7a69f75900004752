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

from mtlscale.config import SPLITS, UNKNOWN_CATEGORY, UserError
from mtlscale.data.format.table_columns import TableColumn
from mtlscale.data.tables.arrow_types import is_text
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_file import ROW, no_row
from pipelines._engine.map_jobs import results_of
from pipelines._steps.features import lists, scaling
from pipelines._tables.column_sums import ColumnSums, sums_of
from pipelines._tables.inputs import InputColumns, infinite_cells
from pipelines._tables.shared_table import SharedTable, UsableRows
from pipelines._tables.suspicions import perfect_predictors
from pipelines._tables.table_parts import RawPart, TablePart, TableParts, check_encoding, typed
from pipelines._tables.targets import Target
from pipelines._tables.text_columns import Reading, TextSummary, converted, reading_of, summary_of, wrong_cell
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
        texts: Column -> what is known of its texts.
        infinite: Column -> rows with an infinite number.
        no_molecules: Row without a molecule -> problem.
    """

    raw: RawPart
    rows: int
    texts: dict[str, TextSummary]
    infinite: dict[str, list[int]]
    no_molecules: dict[int, str]


@dataclass(frozen=True)
class PartReader:
    """Function from a part, and the number of its first row, to its rows, with their numbers in the column `ROW`."""

    parts: TableParts
    readings: tuple[tuple[str, Reading], ...] = ()  # of columns of texts that are numbers or dates

    def __call__(self, part: TablePart, first: int, columns: tuple[str, ...]) -> pa.Table:
        raw = self.parts.read(part, columns)
        table = raw.table
        for name, reading in self.readings:
            if name in columns:
                place = table.column_names.index(name)
                table = table.set_column(place, name, converted(table[name], reading, self.parts.form))
        return table.append_column(ROW, pa.array(np.array(raw.numbers, np.int64) + first))


def large_table(shared: SharedTable, parts: TableParts, context: PrepareContext) -> Prepared:
    """Return the data set of a table that is read in parts, nothing converted yet."""
    roles = shared.roles(parts.columns)
    if parts.layout is not None and parts.layout.question:
        raise UserError(f"{parts.where}: {parts.layout.question}")
    summaries = _each(partial(_summary, parts, shared.inputs), [PartJob(part) for part in parts.parts], context, "read")
    _check_rows(parts, summaries)
    firsts = np.cumsum([0, *(summary.rows for summary in summaries)])
    lines = [summary.raw.lines for summary in summaries if summary.raw.lines is not None]
    notes = dict(parts.layout.notes) if parts.layout is not None else {}
    notes |= check_encoding(parts.where, parts.path.name, lines, parts.header_lines)
    if not parts.types:
        parts = typed(parts, [summary.raw for summary in summaries], notes)

    empty = parts.schema.empty_table()
    names = shared.inputs.names(empty, roles, notes)
    problems = [(f"row {firsts[number] + row + 1}", problem) for number, summary in enumerate(summaries)
                for row, problem in summary.raw.bad_rows.items()]  # fmt: skip
    bad_cells: Problems = []
    readings = _readings(shared, empty, names, summaries, firsts, bad_cells, notes)
    reader = PartReader(parts, tuple(readings.items()))
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
    results: list[Any] = [None] * len(jobs)
    numbered = list(enumerate(jobs))
    with closing(
        results_of(partial(_numbered, function), numbered, context.engine, lambda: True, context.plan)
    ) as finished:
        for count, done in enumerate(finished, start=1):
            results[done.job] = done.result
            context.progress(stage, count, len(jobs))
    return results


def _numbered(function: Callable[[PartJob], Any], job: tuple[int, PartJob]) -> _Done:
    return _Done(job[0], function(job[1]))


def _summary(parts: TableParts, inputs: InputColumns, job: PartJob) -> PartSummary:
    raw = parts.read(job.part)
    table, numbers = raw.table, raw.numbers
    infinite = {name: [numbers[row] for row in infinite_cells(table[name])] for name in table.column_names}
    texts = {name: summary_of(table[name], parts.form, numbers) for name in table.column_names}
    no_molecules = {numbers[row]: problem for row, problem in inputs.bad_molecules(table).items()}
    without_rows = replace(raw, table=table.schema.empty_table())
    return PartSummary(without_rows, len(table) + len(raw.bad_rows), texts, infinite, no_molecules)


def _check_rows(parts: TableParts, summaries: Sequence[PartSummary]) -> None:
    """Raise `UserError` if all rows have another number of fields than the header."""
    bad = sum(len(summary.raw.bad_rows) for summary in summaries)
    if parts.layout is not None and bad and bad == sum(summary.rows for summary in summaries):
        first = next(summary.raw for summary in summaries if summary.raw.bad_rows)
        raise no_row(parts.where, parts.layout, first.bad_rows, first.first_bad, bad)


def _readings(
    shared: SharedTable,
    empty: pa.Table,
    names: Sequence[str],
    summaries: Sequence[PartSummary],
    firsts: np.ndarray,
    bad_cells: Problems,
    notes: dict[str, Any],
) -> dict[str, Reading]:
    """Return the columns of texts that are numbers or dates; bad cells of inputs are added to `bad_cells`."""
    for name in names:
        for first, summary in zip(firsts, summaries, strict=False):
            rows = summary.infinite.get(name, ())
            bad_cells += [(f"row {first + row + 1}", f"is infinite in {name}") for row in rows]
    for first, summary in zip(firsts, summaries, strict=False):
        bad_cells += [(f"row {first + row + 1}", problem) for row, problem in summary.no_molecules.items()]

    readings, questions = {}, {}
    for name, use in shared.uses(empty, names).items():
        if not is_text(empty[name].type):
            continue
        merged = None
        for first, summary in zip(firsts, summaries, strict=False):
            part = summary.texts[name].moved(int(first))
            merged = part if merged is None else merged.merged(part)
        assert merged is not None
        reading = reading_of(merged, use, shared.form)
        if reading.question is not None:
            questions[name] = reading.question
        if reading.kind:
            readings[name] = replace(reading, wrong=())
            bad_cells += [(f"row {row + 1}", wrong_cell(name, text, reading.kind)) for row, text in reading.wrong]
    shared.ask(questions, notes)
    return readings


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
    kinds = {name: shared.inputs.kind(table.schema.field(name)) for name in names}
    sums = {name: sums_of(table[name], train, kinds[name], shared.inputs.most_categories) for name in names}
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
    if shared.standardise and not all(column.kind in ("category", "hash", "smiles") for column in columns):
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
