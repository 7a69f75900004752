"""The inspection of a user's file: inputs, targets and their kinds, splits, and suspicious columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError, build, nearest
from mtlscale.data.quality_warnings import word_lines
from mtlscale.data.tables.arrow_types import WEIGHT, declared_kind
from mtlscale.data.tables.notations import Question
from mtlscale.data.tables.raw_files import Problems, is_hidden
from mtlscale.data.tables.table_file import ROW, TableRead, read_table
from pipelines._formats.hub_table import SPLIT_COLUMN, read_hub_table
from pipelines._images.picture_checks import picture_lines
from pipelines._sources.neighbours import labels_beside, neighbour_lines
from pipelines._tables.inputs import BESIDE_MOLECULES, infinite_cells, input_kind, is_present, no_input
from pipelines._tables.molecule_column import assays, molecule_column
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.suspicions import duplicates, near_predictors, perfect_predictors, row_names
from pipelines._tables.table_parts import is_large, parts_of, sample_of
from pipelines._tables.target_checks import alike_columns, target_warnings, value_warnings
from pipelines._tables.target_choice import chosen_targets
from pipelines._tables.targets import Target, guess_kind, read_target, target_uses
from pipelines._tables.text_columns import question_lines, read_texts
from pipelines.image.image_folder import IMAGE, PICTURES, ImageFolder, split_folders
from pipelines.vectors.table import TableFile

_TARGET_NAMES = ("target", "targets", "label", "labels", "class", "outcome", "y")
_LARGE_SAMPLE = 4  # parts of a large file
INPUT, TARGET, LEFT_OUT = "input", "target", "left out"


@dataclass(frozen=True)
class ColumnReport:
    """The role of a column, with the reason.

    Attributes:
        name: The column.
        role: `input`, `target`, `left out`, or the option that names it.
        kind: `number`, `date`, `category`, `smiles`, or the kind of a target.
        reason: The reason for the role and the kind; "" where there is nothing to say.
        distinct: The number of different values.
        empty: The number of empty cells.
    """

    name: str
    role: str
    kind: str
    reason: str
    distinct: int
    empty: int


@dataclass(frozen=True)
class SourceReport:
    """The data set that a file or folder would be.

    Attributes:
        dataset: The pipeline that reads it.
        options: The options of the pipeline that an experiment file should have.
        rows: The number of samples.
        columns: The columns of the table, or of the labels.
        splits: The number of samples of each split; empty if they cannot be split yet, which `warnings` explain.
        warnings: What the user should look at.
    """

    dataset: str
    options: dict[str, Any]
    rows: int
    columns: list[ColumnReport]
    splits: dict[str, int]
    warnings: list[str] = field(default_factory=list)

    @property
    def targets(self) -> list[ColumnReport]:
        """The columns that are targets."""
        return [column for column in self.columns if column.role == TARGET]


@dataclass
class _RawTable:
    """Table as its file has it, with what was noticed while it was read."""

    read: TableRead
    pipeline: TableFile
    options: dict[str, Any]
    warnings: list[str] = field(default_factory=list)


def inspect_table(source: Path, targets: Sequence[str], options: Mapping[str, Any]) -> SourceReport:
    """Return what a table would become.

    Args:
        source: The file, a folder with one, or a folder of the `datasets` library.
        targets: The targets as the command line has them (`chosen_targets`); empty: they are guessed.
        options: Options of the pipeline `table`.
    """
    raw = _read(source, options)
    pipeline, read = raw.pipeline, raw.read
    roles = {name: role for role in ("id", "weight", "group", "time", "split_column")
             if (name := getattr(pipeline, role))}  # fmt: skip
    columns = [name for name in read.table.column_names if name != ROW]
    free = [name for name in columns if name not in roles]
    kinds = chosen_targets(targets, free)
    molecules = pipeline.smiles
    if not molecules and not pipeline.features:
        molecules = molecule_column(read.table, [name for name in free if name not in kinds])
        raw.options |= {"smiles": molecules} if molecules else {}
    reasons: dict[str, str] = {}
    if molecules and not kinds:
        kinds, reasons = assays(read.table, [name for name in free if name != molecules])
        raw.warnings.append(f"the targets are guessed: all columns beside the molecules in {molecules!r} that may be; "
                            "name yours by --targets")  # fmt: skip
        if not kinds:
            raise UserError(f"table: no column beside the molecules in {molecules!r} may be a target; name one by "
                            "--targets")  # fmt: skip
    kinds = kinds or _guessed_targets(raw, source, free)
    _check_there(columns, [*kinds, *roles, *([molecules] if molecules else [])])
    pipeline = _built(kinds, raw.options)

    rows = [f"row {row + 1}" for row in read.table[ROW].to_pylist()]
    candidates = [name for name in columns if name not in kinds and name not in roles]
    table, questions = _in_numbers(raw, pipeline, candidates, kinds, rows)
    labels = [read_target("table", table, column, kind, pipeline.separator, rows, read.problems)
              for column, kind in kinds.items()]  # fmt: skip
    ids = np.array([f"{row:09d}" for row in table[ROW].to_pylist()], dtype=object)
    parts = _split(pipeline.row_split, table, ids, labels, raw.warnings)
    train = parts.get("train", np.arange(len(table)))

    if molecules:
        bad = pipeline.input_columns.bad_molecules(table)
        read.problems += [(rows[row], problem) for row, problem in bad.items()]
        for name in [name for name in candidates if name not in (molecules, *reasons)]:
            reason = row_names(name, table[name])
            reasons[name] = f"seems to name the rows: {reason}" if reason else BESIDE_MOLECULES
    else:
        reasons = _reasons_to_leave_out(table, candidates, labels, train, questions)
    chosen = [name for name in pipeline.features or candidates if name not in reasons or name in pipeline.features]
    if not chosen:
        raw.warnings.append("no column is left as an input; name some by --option features=[…]")
    _warn_of(read.problems, "cells or rows", raw.warnings)
    reports = [
        _column(table, name, kinds, roles, chosen, reasons, pipeline) for name in table.column_names if name != ROW
    ]
    shown_kinds = {report.name: report.kind for report in reports}
    inputs = {name: table[name] for name in chosen if name != molecules and input_kind(table[name].type) is not None}
    raw.warnings += [f"column {name!r} gives {what} nearly away; leave it out if it is not known beforehand"
                     for name, what in near_predictors(inputs, labels, train).items()]  # fmt: skip
    raw.warnings += target_warnings("table", table, labels, parts, rows)
    raw.warnings += value_warnings(table, [*kinds, *chosen], shown_kinds)
    raw.warnings += filter(None, [alike_columns(list(kinds), chosen)])
    raw.warnings += neighbour_lines(source)

    suggested: dict[str, Any] = {**raw.options, "targets": {label.column: label.kind for label in labels}}
    if reasons and not pipeline.features and not molecules:
        suggested["features"] = chosen
    suggested.setdefault("constant", "drop")
    return SourceReport("table", suggested, len(table), reports, _sizes(parts), raw.warnings)


def _guessed_targets(raw: _RawTable, source: Path, columns: Sequence[str]) -> dict[str, str]:
    """Return the targets that the file, or a list beside it, names, else a column called so, or the last one."""
    named = raw.read.outputs or (labels_beside(source, list(columns)) if source.is_file() else [])
    if named:
        raw.warnings.append(f"the targets are those that {'the file' if raw.read.outputs else 'the list beside it'} "
                            f"names: {', '.join(named[:6])}; name others by --targets")  # fmt: skip
        return dict.fromkeys(named, "auto")
    usable = [name for name in columns if not no_input(raw.read.table.schema.field(name))] or list(columns)
    guess = next((name for name in usable if name.strip().lower() in _TARGET_NAMES), usable[-1])
    raw.warnings.append("the target is guessed; name yours by --targets")
    return {guess: "auto"}


def _in_numbers(
    raw: _RawTable, pipeline: TableFile, candidates: Sequence[str], targets: Mapping[str, str], rows: Sequence[str]
) -> tuple[pa.Table, dict[str, Question]]:
    """Return the table with texts as the numbers or dates that they are, and what is to be asked about others."""
    table, questions = raw.read.table, dict[str, Question]()
    inputs = [name for name in candidates if input_kind(table[name].type)]
    uses = pipeline.input_columns.uses(table, inputs) | target_uses(table.schema, targets)
    uses |= {pipeline.time: "number or date"} if pipeline.time else {}
    table = read_texts(table, uses, pipeline.form, rows, raw.read.problems, questions)
    for name in inputs:
        raw.read.problems += [(rows[row], f"is infinite in {name}") for row in infinite_cells(table[name])]

    raw.warnings += [*raw.read.questions, *question_lines(questions)]
    return table, questions


def _read(source: Path, options: Mapping[str, Any]) -> _RawTable:
    """Return the table that the source holds; a set of the `datasets` library brings its splits."""
    pipeline = _built({}, options)
    located = pipeline.locate(source)
    if located.is_dir():
        read = read_hub_table("table", located)
        with_splits = {"split_column": SPLIT_COLUMN} if SPLIT_COLUMN in read.table.column_names else {}
        all_options = {**with_splits, **options}
        return _RawTable(read, _built({}, all_options), all_options)

    if is_large(located):
        parts = parts_of(located, pipeline.form)
        table, notes = sample_of(parts, _LARGE_SAMPLE)
        questions = [f"{parts.where}: {parts.layout.question}"] if parts.layout and parts.layout.question else []
        warning = (f"the file is large: {len(table):,} rows, from {_LARGE_SAMPLE} of its {len(parts.parts)} parts, "
                   "were looked at; numbers and splits are those of them")  # fmt: skip
        read = TableRead(table, notes, questions=questions)
        return _RawTable(read, pipeline, dict(options), [warning, *reading_lines(notes)])

    read = read_table(located, pipeline.form)
    raw = _RawTable(read, pipeline, dict(options), list(reading_lines(read.notes)))
    if not pipeline.weight:
        weights = [entry.name for entry in read.table.schema if declared_kind(entry) == WEIGHT]
        raw.options |= {"weight": weights[0]} if weights else {}
        raw.pipeline = _built({}, raw.options)
    return raw


def reading_lines(notes: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each thing about the reading of a file that its user should know."""
    for note, encoding in (("read_as_latin_1", "Latin-1"), ("read_as_cp1252", "Windows-1252"),
                           ("read_as_utf_16", "UTF-16"), ("read_as_utf_32", "UTF-32")):  # fmt: skip
        if note in notes:
            yield f"the file is no UTF-8 and was read as {encoding}"
    if "read_as_csv" in notes:
        yield "the file is no Parquet and was read as CSV"
    if "separated_by" in notes:
        yield f"the columns stand between {notes['separated_by']}"
    if "row_names" in notes:
        yield f"{notes['row_names']}; it is taken as the name of the row, as R writes it"
    yield from word_lines(notes)


def _built(targets: Mapping[str, str], options: Mapping[str, Any]) -> TableFile:
    pipeline: TableFile = build("datasets", "table", {**options, "targets": dict(targets) or {"target": "auto"}})
    return pipeline


def _check_there(columns: Sequence[str], names: Sequence[str]) -> None:
    missing = next((name for name in names if name not in columns), None)
    if missing is not None:
        several = missing.split()
        if len(several) > 1 and set(several) <= set(columns):
            mend = ",".join(several)
            raise UserError(f"table: there is no column {missing!r}; columns are divided by commas: {mend}")
        column, sign, kind = missing.partition("=")
        if sign and column in columns:
            raise UserError(f"table: there is no column {missing!r}; a kind stands behind a colon: {column}:{kind}")
        raise UserError(f"table: there is no column {missing!r}; {nearest(missing, columns)}")


def _split(
    split: RowSplit, table: pa.Table, ids: np.ndarray, labels: Sequence[Target], warnings: list[str]
) -> dict[str, np.ndarray]:
    """Return the rows of each split; a reason why there are none goes to the warnings."""
    try:
        return split.rows(table, ids, [label.codes for label in labels if label.kind == "class"])
    except UserError as error:
        warnings.append(str(error))
        return {}


def _sizes(parts: Mapping[str, np.ndarray]) -> dict[str, int]:
    return {name: len(part) for name, part in parts.items()}


def _warn_of(problems: Problems, things: str, warnings: list[str]) -> None:
    """Add what cannot be used to the warnings."""
    if problems:
        name, problem = sorted(problems)[0]
        number = f"{len(problems)} {things if len(problems) > 1 else things.replace('s or ', ' or ').removesuffix('s')}"
        warnings.append(f"{number} cannot be used, the first: {name} {problem}; mend them, or "
                        "run `mtlscale prepare FILE.yaml --skip-bad` first")  # fmt: skip


def _reasons_to_leave_out(
    table: pa.Table,
    candidates: Sequence[str],
    labels: Sequence[Target],
    train: np.ndarray,
    questions: Mapping[str, Question],
) -> dict[str, str]:
    """Return column -> the reason why it should be no input."""
    reasons: dict[str, str] = {}
    usable = {name: table[name] for name in candidates if input_kind(table[name].type) is not None}
    for name in candidates:
        if reason := no_input(table.schema.field(name)):
            reasons[name] = reason
        elif name not in usable:
            reasons[name] = f"holds {table[name].type}, no numbers, dates or texts"
        elif pc.count_distinct(table[name].take(pa.array(train)), mode="all").as_py() < 2:
            reasons[name] = "constant in training"
        elif name not in questions and (problem := row_names(name, table[name])):
            reasons[name] = f"seems to name the rows: {problem}"

    remaining = {name: column for name, column in usable.items() if name not in reasons}
    for name, target in perfect_predictors(remaining, labels, train).items():
        reasons[name] = f"gives target {target!r} away without an error"
    for name, earlier in duplicates({n: column for n, column in remaining.items() if n not in reasons}).items():
        reasons[name] = f"the same as {earlier!r}"
    return reasons


def _column(
    table: pa.Table,
    name: str,
    targets: Mapping[str, str],
    roles: Mapping[str, str],
    chosen: Sequence[str],
    reasons: Mapping[str, str],
    pipeline: TableFile | None = None,
) -> ColumnReport:
    column, entry = table[name], table.schema.field(name)
    kind = input_kind(entry.type) or str(entry.type)
    if pipeline is not None and (kind in ("number", "date") or name == pipeline.smiles):
        kind = pipeline.input_columns.kind(entry)
    reason, role = reasons.get(name, ""), INPUT if name in chosen else LEFT_OUT
    if name in targets:
        guessed_kind, why = guess_kind(table, name)
        kind, reason = (guessed_kind, why) if targets[name] == "auto" else (targets[name], "as --targets says")
        role = TARGET
    elif name in roles:
        role = roles[name]

    return ColumnReport(name, role, kind, reason, _distinct(column), int((~is_present(column)).sum()))


def _distinct(column: pa.ChunkedArray) -> int:
    """Return the number of different values, 0 where they cannot be compared."""
    try:
        return int(pc.count_distinct(column).as_py())
    except pa.ArrowNotImplementedError:
        return 0


def inspect_source(source: Path, targets: Sequence[str], options: Mapping[str, Any]) -> SourceReport:
    """Return what a table, or a folder of pictures, would become.

    Args:
        targets: The targets as the command line has them (`chosen_targets`); empty: they are guessed.
        options: Options of the pipeline that reads it.
    """
    is_pictures = source.is_dir() and any(
        path.suffix.lower() in PICTURES and not is_hidden(path.relative_to(source).as_posix())
        for path in source.rglob("*")
    )
    has_zips = source.is_dir() and any(source.glob("*.zip"))
    return (inspect_images if is_pictures or has_zips else inspect_table)(source, targets, options)


def inspect_images(source: Path, targets: Sequence[str], options: Mapping[str, Any]) -> SourceReport:
    """Return what a folder of pictures would become."""
    problems: Problems = []
    pipeline: ImageFolder = build("datasets", "image_folder", dict(options))
    store, table, notes = pipeline.read(pipeline.locate(source), problems)
    warnings = [*reading_lines(notes), *picture_lines(store, pipeline.white)]
    columns_of_labels = [name for name in table.column_names if name not in (IMAGE, ROW)]
    pipeline = build("datasets", "image_folder", {**options, "targets": chosen_targets(targets, columns_of_labels)})

    kinds = dict(pipeline.target_kinds(table))
    if not targets:
        reasons = {name: reason for name in kinds if (reason := row_names(name, table[name]))}
        kinds = {name: kind for name, kind in kinds.items() if name not in reasons} or kinds
        warnings += [f"column {name!r} is no target: {reason}" for name, reason in reasons.items() if name not in kinds]
    names = table[IMAGE].to_pylist()
    questions: dict[str, Question] = {}
    table = read_texts(table, target_uses(table.schema, kinds), pipeline.form, names, problems, questions)
    warnings += question_lines(questions)
    labels = [read_target("image_folder", table, column, kind, pipeline.separator, names, problems)
              for column, kind in kinds.items()]  # fmt: skip

    split = pipeline.row_split(split_folders(table))
    parts = _split(split, table, np.array(names, dtype=object), labels, warnings)
    _warn_of(problems, "pictures or rows", warnings)

    warnings += target_warnings("image_folder", table, labels, parts, names)
    warnings += value_warnings(table, list(kinds), {label.column: label.kind for label in labels})

    columns = [_column(table, name, kinds, {}, [], {}) for name in columns_of_labels]
    chosen = {label.column: label.kind for label in labels}
    suggested = {"size": pipeline.size, **options, "targets": chosen}
    return SourceReport("image_folder", suggested, len(store.names), columns, _sizes(parts), warnings)
