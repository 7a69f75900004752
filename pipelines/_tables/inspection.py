"""The inspection of a user's file: inputs, targets and their kinds, splits, and suspicious columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError, build, nearest
from pipelines._formats.hub_table import SPLIT_COLUMN, read_hub_table
from pipelines._formats.table_file import ROW, read_table
from pipelines._formats.text_files import Problems
from pipelines._tables.inputs import input_kind
from pipelines._tables.row_splits import RowSplit
from pipelines._tables.suspicions import duplicates, perfect_predictors, row_names
from pipelines._tables.table_parts import is_large, parts_of, sample_of
from pipelines._tables.targets import Target, guess_kind, is_present, read_target
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
        kind: `number`, `date`, `category`, or the kind of a target.
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

    table: pa.Table
    pipeline: TableFile
    options: dict[str, Any]
    problems: Problems = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def inspect_table(source: Path, targets: Mapping[str, str], options: Mapping[str, Any]) -> SourceReport:
    """Return what a table would become.

    Args:
        source: The file, a folder with one, or a folder of the `datasets` library.
        targets: Target column -> kind or `auto`; empty: they are guessed.
        options: Options of the pipeline `table`.
    """
    raw = _read(source, targets, options)
    pipeline, table = raw.pipeline, raw.table
    roles = {name: role for role in ("id", "weight", "group", "time", "split_column")
             if (name := getattr(pipeline, role))}  # fmt: skip
    if not targets:
        columns = [name for name in table.column_names if name != ROW and name not in roles]
        guess = next((name for name in columns if name.strip().lower() in _TARGET_NAMES), columns[-1])
        targets = {guess: "auto"}
        raw.warnings.append("the target is guessed; name yours by --targets")
    _check_there(table, [*targets, *roles])

    candidates = [name for name in table.column_names if name not in (ROW, *targets, *roles)]
    rows = [f"row {row + 1}" for row in table[ROW].to_pylist()]
    convertible = [name for name in candidates if input_kind(table[name].type)]
    table = pipeline.input_columns.parsed(table, convertible, rows, raw.problems)
    labels = [read_target("table", table, column, kind, pipeline.separator, rows, raw.problems)
              for column, kind in targets.items()]  # fmt: skip
    ids = np.array([f"{row:09d}" for row in table[ROW].to_pylist()], dtype=object)
    parts = _split(pipeline.row_split, table, ids, labels, raw.warnings)

    reasons = _reasons_to_leave_out(table, candidates, labels, parts.get("train", np.arange(len(table))))
    chosen = [name for name in pipeline.features or candidates if name not in reasons or name in pipeline.features]
    if not chosen:
        raw.warnings.append("no column is left as an input; name some by --option features=[…]")
    _warn_of(raw.problems, "cells or rows", raw.warnings)

    columns = [
        _column(table, name, targets, roles, chosen, reasons, pipeline.categorical)
        for name in table.column_names
        if name != ROW
    ]
    suggested: dict[str, Any] = {**raw.options, "targets": {label.column: label.kind for label in labels}}
    if reasons and not pipeline.features:
        suggested["features"] = chosen
    suggested.setdefault("constant", "drop")
    return SourceReport("table", suggested, len(table), columns, _sizes(parts), raw.warnings)


def _read(source: Path, targets: Mapping[str, str], options: Mapping[str, Any]) -> _RawTable:
    """Return the table that the source holds; a set of the `datasets` library brings its splits."""
    pipeline = _built(targets, options)
    located = pipeline.locate(source)
    if located.is_dir():
        table, _ = read_hub_table("table", located)
        with_splits = {"split_column": SPLIT_COLUMN} if SPLIT_COLUMN in table.column_names else {}
        all_options = {**with_splits, **options}
        return _RawTable(table, _built(targets, all_options), all_options)

    if is_large(located):
        parts = parts_of(located, header=pipeline.header, missing=pipeline.missing)
        table = sample_of(parts, _LARGE_SAMPLE)
        warning = (f"the file is large: {len(table):,} rows, from {_LARGE_SAMPLE} of its {len(parts.parts)} parts, "
                   "were looked at; numbers and splits are those of them")  # fmt: skip
        return _RawTable(table, pipeline, dict(options), warnings=[warning])

    problems: Problems = []
    table, notes = read_table(located, header=pipeline.header, missing=pipeline.missing, problems=problems)
    raw = _RawTable(table, pipeline, dict(options), problems)
    if "read_as_latin_1" in notes:
        raw.warnings.append("the file is no UTF-8 and was read as Latin-1")
    return raw


def _built(targets: Mapping[str, str], options: Mapping[str, Any]) -> TableFile:
    pipeline: TableFile = build("datasets", "table", {**options, "targets": dict(targets) or {"target": "auto"}})
    return pipeline


def _check_there(table: pa.Table, names: Sequence[str]) -> None:
    available = [name for name in table.column_names if name != ROW]
    missing = next((name for name in names if name not in available), None)
    if missing is not None:
        raise UserError(f"table: there is no column {missing!r}; {nearest(missing, available)}")


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
        warnings.append(f"{len(problems)} {things} cannot be used, the first: {name} {problem}; mend them, or "
                        "run `mtlscale prepare FILE.yaml --skip-bad` first")  # fmt: skip


def _reasons_to_leave_out(
    table: pa.Table, candidates: Sequence[str], labels: Sequence[Target], train: np.ndarray
) -> dict[str, str]:
    """Return column -> the reason why it should be no input."""
    reasons: dict[str, str] = {}
    usable = {name: table[name] for name in candidates if input_kind(table[name].type) is not None}
    for name in candidates:
        if name not in usable:
            reasons[name] = f"holds {table[name].type}, no numbers, dates or texts"
        elif pc.count_distinct(table[name].take(pa.array(train)), mode="all").as_py() < 2:
            reasons[name] = "constant in training"
        elif problem := row_names(name, table[name]):
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
    categorical: Sequence[str],
) -> ColumnReport:
    column = table[name]
    kind = "category" if name in categorical else input_kind(column.type) or str(column.type)
    reason, role = reasons.get(name, ""), INPUT if name in chosen else LEFT_OUT
    if name in targets:
        guessed_kind, why = guess_kind(column)
        kind, reason = (guessed_kind, why) if targets[name] == "auto" else (targets[name], "as --targets says")
        role = TARGET
    elif name in roles:
        role = roles[name]

    distinct = 0 if pa.types.is_nested(column.type) else pc.count_distinct(column).as_py()
    return ColumnReport(name, role, kind, reason, distinct, int((~is_present(column)).sum()))


def inspect_source(source: Path, targets: Mapping[str, str], options: Mapping[str, Any]) -> SourceReport:
    """Return what a table, or a folder of pictures, would become.

    Args:
        source: The file or folder.
        targets: Target column -> kind or `auto`; empty: they are guessed.
        options: Options of the pipeline that reads it.
    """
    is_pictures = source.is_dir() and any(path.suffix.lower() in PICTURES for path in source.rglob("*"))
    has_zips = source.is_dir() and any(source.glob("*.zip"))
    return (inspect_images if is_pictures or has_zips else inspect_table)(source, targets, options)


def inspect_images(source: Path, targets: Mapping[str, str], options: Mapping[str, Any]) -> SourceReport:
    """Return what a folder of pictures would become."""
    pipeline: ImageFolder = build("datasets", "image_folder", {**options, "targets": dict(targets)})
    problems: Problems = []
    warnings: list[str] = []
    store, table, _ = pipeline.read(pipeline.locate(source), problems)

    kinds = dict(pipeline.target_kinds(table))
    if not targets:
        reasons = {name: reason for name in kinds if (reason := row_names(name, table[name]))}
        kinds = {name: kind for name, kind in kinds.items() if name not in reasons} or kinds
        warnings += [f"column {name!r} is no target: {reason}" for name, reason in reasons.items() if name not in kinds]
    names = table[IMAGE].to_pylist()
    labels = [read_target("image_folder", table, column, kind, pipeline.separator, names, problems)
              for column, kind in kinds.items()]  # fmt: skip

    split = pipeline.row_split(split_folders(table))
    parts = _split(split, table, np.array(names, dtype=object), labels, warnings)
    _warn_of(problems, "pictures or rows", warnings)

    columns = [_column(table, name, kinds, {}, [], {}, ()) for name in table.column_names if name not in (IMAGE, ROW)]
    chosen = {label.column: label.kind for label in labels}
    suggested = {"size": pipeline.size, **options, "targets": chosen}
    return SourceReport("image_folder", suggested, len(store.names), columns, _sizes(parts), warnings)
