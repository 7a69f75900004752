"""Tables as data sets, read part by part.

Tasks of Ray Data, or threads, pass over the parts of a large file. The first pass finds types and bad cells, the second
fetches the columns with another role than input, the third sums up the inputs over the training rows; the last one
converts and writes shards. One process only holds targets, ids and splits. A table in memory is its own only part: the
passes run in this process, and the samples are written at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from mtlscale.config import SPLITS, UNKNOWN_CATEGORY, TaskSuite, UserError
from mtlscale.data.format.table_columns import TableColumn, encode_all, unseen_count
from mtlscale.data.tables.arrow_types import is_text
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_file import ROW, no_row
from pipelines._engine.map_jobs import results_of
from pipelines._steps.features import lists, repeated_inputs, scaling, standardised
from pipelines._tables.column_sums import ColumnSums, sums_of
from pipelines._tables.inputs import InputColumns, has_fractions, infinite_cells
from pipelines._tables.suspicions import perfect_predictors
from pipelines._tables.table_parts import RawPart, TablePart, TableParts, WholeTable, check_encoding, typed
from pipelines._tables.table_rules import TableRules, UsableRows
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
        texts: Column -> what is known of its texts.
        infinite: Column -> rows with an infinite number.
        no_molecules: Row without a molecule -> problem.
        empty: Column -> rows without a value, where every input needs one.
        fractions: Column of categories -> whether it has numbers that are not whole, likewise.
    """

    raw: RawPart
    texts: dict[str, TextSummary]
    infinite: dict[str, list[int]]
    no_molecules: dict[int, str]
    empty: dict[str, list[int]]
    fractions: dict[str, bool]


Parts = TableParts | WholeTable


@dataclass(frozen=True)
class PartReader:
    """Function from a part, and the number of its first row, to its rows, with their numbers in the column `ROW`."""

    parts: Parts
    readings: tuple[tuple[str, Reading], ...] = ()  # of columns of texts that are numbers or dates

    @property
    def schema(self) -> pa.Schema:
        """The columns with the types that they are read as."""
        read = {name: reading.kind for name, reading in self.readings}
        kinds = {"date": pa.timestamp("us"), "number": pa.float64()}
        return pa.schema(
            [entry.with_type(kinds.get(read.get(entry.name, ""), entry.type)) for entry in self.parts.schema]
        )

    def __call__(self, part: TablePart, first: int, columns: tuple[str, ...]) -> pa.Table:
        raw = self.parts.read(part, columns)
        table = raw.table
        for name, reading in self.readings:
            if name in columns:
                position = table.column_names.index(name)
                table = table.set_column(position, name, converted(table[name], reading, self.parts.form))
        return table.append_column(ROW, pa.array(raw.numbers + first))


def prepared_table(
    rules: TableRules, parts: Parts, context: PrepareContext, notes: dict[str, Any], problems: Problems
) -> Prepared:
    """Return the data set of a table.

    Args:
        parts: The table; nothing of a file is converted yet.
        notes: Notes on the reading, extended here.
        problems: (row, problem) of rows that were left out, extended here.
    """
    roles = rules.roles(parts.columns)
    if isinstance(parts, TableParts) and parts.layout is not None and parts.layout.question:
        raise UserError(f"{parts.where}: {parts.layout.question}")
    summaries = _each(partial(_summary, parts, rules.inputs), [PartJob(part) for part in parts.parts], context, "read")
    firsts = np.cumsum([0, *(summary.raw.rows for summary in summaries)])
    if isinstance(parts, TableParts):
        parts = _typed(parts, summaries, notes)
    problems += [(f"row {firsts[number] + row + 1}", problem) for number, summary in enumerate(summaries)
                 for row, problem in summary.raw.bad_rows.items()]  # fmt: skip

    names = rules.inputs.names(parts.schema.empty_table(), roles, notes)
    bad_cells: Problems = []
    readings = _readings(rules, parts.schema.empty_table(), names, summaries, firsts, bad_cells, notes)
    reader = PartReader(parts, tuple(readings.items()))
    fractions = {name: any(summary.fractions.get(name) for summary in summaries) for name in names}
    rules.check(reader.schema, names, fractions)
    jobs = [PartJob(part, int(first)) for part, first in zip(parts.parts, firsts[:-1], strict=True)]

    tables = _each(partial(_columns_of, reader, tuple(dict.fromkeys(roles))), jobs, context, "targets")
    rows = rules.usable(pa.concat_tables(tables), bad_cells, problems, notes, context)
    del tables
    numbers = rows.table[ROW].to_numpy()
    train = numbers[rows.splits["train"]]
    if isinstance(parts, WholeTable):
        table = reader(parts.parts[0], 0, tuple(dict.fromkeys([*names, *roles])))
        if len(numbers) < len(table):
            table = table.filter(pa.array(np.isin(table[ROW].to_numpy(), numbers)))
        reader = PartReader(WholeTable(table))
    else:
        train = np.sort(train)
    bounds = np.searchsorted(np.sort(train), firsts)
    jobs = [
        replace(job, train=train[start:stop]) for job, start, stop in zip(jobs, bounds[:-1], bounds[1:], strict=True)
    ]
    totals, sample = _totals(rules, reader, names, jobs, context)
    return _prepared(rules, reader, jobs, rows, totals, sample, notes)


def _typed(parts: TableParts, summaries: Sequence[PartSummary], notes: dict[str, Any]) -> TableParts:
    """Return a file with the types of all its parts; `UserError` if its rows or encodings differ."""
    _check_rows(parts, summaries)
    lines = [summary.raw.lines for summary in summaries if summary.raw.lines is not None]
    notes |= dict(parts.layout.notes) if parts.layout is not None else {}
    notes |= check_encoding(parts.where, parts.path.name, lines, parts.header_lines)
    return parts if parts.types else typed(parts, [summary.raw for summary in summaries], notes)


def _each(
    function: Callable[[PartJob], Any], jobs: Sequence[PartJob], context: PrepareContext, stage: str
) -> list[Any]:
    if len(jobs) == 1:
        return [function(jobs[0])]
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


def _summary(parts: Parts, inputs: InputColumns, job: PartJob) -> PartSummary:
    raw = parts.read(job.part)
    table, numbers = raw.table, raw.numbers.tolist()
    infinite = {name: [numbers[row] for row in infinite_cells(table[name])] for name in table.column_names}
    texts = {name: summary_of(table[name], parts.form, numbers) for name in table.column_names}
    no_molecules = {numbers[row]: problem for row, problem in inputs.bad_molecules(table).items()}
    without_rows = replace(raw, table=table.schema.empty_table(), numbers=raw.numbers[:0])
    empty = {name: [numbers[row] for row in rows] for name, rows in inputs.empty_cells(table).items()}
    categorical = [name for name in inputs.categorical if inputs.complete and name in table.column_names]
    fractions = {name: has_fractions(table[name]) for name in categorical}
    return PartSummary(without_rows, texts, infinite, no_molecules, empty, fractions)


def _check_rows(parts: TableParts, summaries: Sequence[PartSummary]) -> None:
    """Raise `UserError` if all rows have another number of fields than the header."""
    bad = sum(len(summary.raw.bad_rows) for summary in summaries)
    if parts.layout is not None and bad and bad == sum(summary.raw.rows for summary in summaries):
        first = next(summary.raw for summary in summaries if summary.raw.bad_rows)
        raise no_row(parts.where, parts.layout, first.bad_rows, first.first_bad, bad)


def _readings(
    rules: TableRules,
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
            rows = summary.empty.get(name, ())
            bad_cells += [(f"row {first + row + 1}", f"has no value in {name}") for row in rows]
    for first, summary in zip(firsts, summaries, strict=False):
        bad_cells += [(f"row {first + row + 1}", problem) for row, problem in summary.no_molecules.items()]

    readings, questions = {}, {}
    for name, use in rules.uses(empty, names).items():
        if not is_text(empty[name].type):
            continue
        merged = None
        for first, summary in zip(firsts, summaries, strict=False):
            part = summary.texts[name].moved(int(first))
            merged = part if merged is None else merged.merged(part)
        assert merged is not None
        reading = reading_of(merged, use, rules.form)
        if reading.question is not None:
            questions[name] = reading.question
        if reading.kind:
            readings[name] = replace(reading, wrong=())
            bad_cells += [(f"row {row + 1}", wrong_cell(name, text, reading.kind)) for row, text in reading.wrong]
            infinite = merged.infinite if reading.kind == "number" and name in names else ()
            bad_cells += [(f"row {row + 1}", f"is infinite in {name}") for row, _ in infinite]
    rules.ask(questions, notes)
    return readings


def _columns_of(reader: PartReader, columns: tuple[str, ...], job: PartJob) -> pa.Table:
    return reader(job.part, job.first, columns)


@dataclass(frozen=True)
class _PartSums:
    sums: dict[str, ColumnSums]
    sample: pa.Table


def _sums(rules: TableRules, reader: PartReader, names: tuple[str, ...], job: PartJob) -> _PartSums:
    table = reader(job.part, job.first, names)
    assert job.train is not None
    train = np.searchsorted(table[ROW].to_numpy(), job.train)
    kinds = {name: rules.inputs.kind(table.schema.field(name)) for name in names}
    sums = {name: sums_of(table[name], train, kinds[name], rules.inputs.most_categories) for name in names}
    sample = train if isinstance(reader.parts, WholeTable) else train[:_SAMPLE]
    return _PartSums(sums, table.take(pa.array(sample)))


def _totals(
    rules: TableRules, reader: PartReader, names: Sequence[str], jobs: Sequence[PartJob], context: PrepareContext
) -> tuple[dict[str, ColumnSums], pa.Table]:
    """Return the sums of each input over all training rows, and some of the rows."""
    with_rows = [job for job in jobs if job.train is not None and len(job.train)]
    by_part = _each(partial(_sums, rules, reader, tuple(names)), with_rows, context, "statistics")
    totals = {}
    for name in names:
        total = by_part[0].sums[name]
        for part in by_part[1:]:
            total = total.merged(part.sums[name])
        totals[name] = total
    return totals, pa.concat_tables([part.sample for part in by_part])


def _prepared(
    rules: TableRules,
    reader: PartReader,
    jobs: Sequence[PartJob],
    rows: UsableRows,
    totals: dict[str, ColumnSums],
    sample: pa.Table,
    notes: dict[str, Any],
) -> Prepared:
    names = rules.varying(list(totals), [name for name, total in totals.items() if total.constant], notes)
    precision: Literal["float32", "float64"] = "float64" if rules.standardise else "float32"
    for name in names:
        if totals[name].loses_differences(precision):
            raise UserError(
                f"{rules.pipeline}: column {name!r} loses its differences in {precision}; take its smallest value off"
            )
    columns = tuple(totals[name].fitted(name, rules.inputs.most_categories, rules.inputs.buckets) for name in names)
    notes |= rules.note(columns)
    hashed = {column.name: totals[column.name].distinct for column in columns if column.kind == "hash"}
    if hashed:
        notes["hashed_categories"] = hashed
    known = [column.name for column in columns if column.kind != "smiles"]
    if given_away := _given_away(sample.select(known), sample[ROW].to_numpy(), rows):
        notes["perfect_predictors"] = given_away

    suite, labels = rules.suite(rows, columns)
    index = _index(suite, rows, rules.label_columns(rows, labels))
    if isinstance(reader.parts, WholeTable):
        return _at_once(rules, reader.parts.table, columns, rows, suite, index, notes)
    scales = [totals[column.name].scale(column) for column in columns]
    means, deviations = (list(chain.from_iterable(scale[part] for scale in scales)) for part in (0, 1))
    if rules.standardise and not all(column.kind in ("category", "hash", "smiles") for column in columns):
        notes["standardised"] = scaling(means, deviations)
    else:
        means, deviations = [0.0] * len(means), [1.0] * len(deviations)

    locations = tuple(replace(job, train=None) for job in jobs)
    convert = ConvertRows(reader, locations, columns, tuple(means), tuple(deviations))
    whole_index = {
        split: pa.concat_tables(
            [table.append_column("stream", pa.array([stream] * len(table))) for stream, table in streams.items()]
            if len(streams) > 1
            else list(streams.values()),
            promote_options="permissive",
        )
        for split, streams in index.items()
    }
    return Prepared(suite, {}, notes=notes, pieces=LargeTable(whole_index, convert, 4 * suite.input_shape[0]))


def _index(
    suite: TaskSuite, rows: UsableRows, label_columns: Mapping[str, np.ndarray]
) -> dict[str, dict[str, pa.Table]]:
    """Return split -> stream -> table of the ids, numbers and labels of its rows, in the order of the table."""
    numbers = rows.table[ROW].to_numpy()
    split_of = np.full(len(numbers), "", dtype=object)
    for split in SPLITS:
        split_of[rows.splits[split]] = split

    index: dict[str, dict[str, pa.Table]] = {split: {} for split in SPLITS}
    for stream, tasks in suite.streams.items():
        stream_rows = rows.streams[stream]
        columns = [name for name in label_columns if name == "weight" or name.removeprefix("target.") in tasks]
        for split in SPLITS:
            positions = np.flatnonzero(split_of[stream_rows] == split)
            chosen = stream_rows[positions]
            index[split][stream] = pa.table({
                "id": pa.array(rows.ids[chosen], pa.string()), ROW: pa.array(numbers[chosen]),
                **{name: pa.array(label_columns[name][positions]) for name in columns},
            })  # fmt: skip
    return index


def _at_once(
    rules: TableRules,
    table: pa.Table,
    columns: Sequence[TableColumn],
    rows: UsableRows,
    suite: TaskSuite,
    index: Mapping[str, Mapping[str, pa.Table]],
    notes: dict[str, Any],
) -> Prepared:
    """Return the data set of a table in memory, scaled by its training rows themselves."""
    inputs = encode_all(columns, table)
    first_places = np.cumsum([0, *(len(column.counts) for column in columns)])
    unseen = {column.name: count for column, place in zip(columns, first_places, strict=False)
              if (count := unseen_count(column, inputs[:, place:]))}  # fmt: skip
    if unseen:
        notes["unknown_categories"] = unseen
    numbers = np.array([count for column in columns for count in column.counts]) == 0
    if rules.standardise and numbers.any():
        inputs, notes["standardised"] = standardised(inputs, rows.splits["train"], numbers)

    table_rows = table[ROW].to_numpy()
    tables = {
        split: {
            stream: samples.set_column(1, "input", lists(inputs[np.searchsorted(table_rows, samples[ROW].to_numpy())]))
            for stream, samples in streams.items()
        }
        for split, streams in index.items()
    }
    if repeated := repeated_inputs(tables):
        notes["test_inputs_in_train_or_val"] = repeated
    return Prepared(suite, tables, notes=notes)


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
