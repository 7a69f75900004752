"""Validation of contributed results by somebody who has neither their runs nor their machine."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from mtlscale.api.submission.record_checks import other_settings, other_versions, problems_of
from mtlscale.config import RESULTS_VERSION, Experiment, Outline, UserError, read_outline
from mtlscale.config.experiment.experiment import FLOORS, Floor
from mtlscale.execution.finding.own_board import contributed_records
from mtlscale.records import RunRecord
from mtlscale.records.submission_schema import (
    EXPERIMENT,
    RECORDS,
    RESULTS,
    Problem,
    Provenance,
    StatedRow,
    check_files,
    read_lines,
    read_provenance,
    records_content,
    records_hash,
)
from mtlscale.report.leaderboard import Leaderboard

_FLOORS = frozenset(get_args(Floor))
_CLOSE = 1e-6  # relative: leaderboards are added up in another order elsewhere


@dataclass(frozen=True)
class Checked:
    """The content of a folder of contributed results, and all its problems."""

    folder: Path
    problems: tuple[Problem, ...]
    outline: Outline | None = None
    records: tuple[RunRecord, ...] = field(default=(), repr=False)  # of its runs, in their order
    provenance: Provenance | None = None

    @property
    def plugins(self) -> str:
        """Its plugins by name and hash; empty if it has none."""
        files = () if self.outline is None else self.outline.plugins
        return ", ".join(f"{plugin.path.name} (sha256 {plugin.sha256})" for plugin in files)


def check(folder: Path) -> Checked:
    """Read contributed results and list all their problems. Nothing in the folder is run.

    Raises:
        UserError: If the folder holds no contributed results, or far too much.
    """
    check_files(folder)
    lines, line_problems = read_lines(folder)
    provenance = read_provenance(folder)
    if isinstance(provenance, Problem):
        return Checked(folder, (*line_problems, provenance))

    problems = [*line_problems, *_of_files(folder, provenance)]
    if provenance.results_version != RESULTS_VERSION:
        reason = f"results_version is {provenance.results_version}, of this mtlscale {RESULTS_VERSION}"
        versions = provenance.versions.get("mtlscale", ["of that time"])
        problems.append(Problem(RESULTS, None, f"{reason}: check it with version {versions[-1]}"))
        return Checked(folder, tuple(problems), provenance=provenance)

    try:
        outline = read_outline(folder / EXPERIMENT)
    except UserError as error:
        problems.append(_of_file(folder, str(error)))
        return Checked(folder, tuple(problems), provenance=provenance)

    problems += _of_experiment(outline, provenance)
    for number, record in lines:
        problems += [Problem(RECORDS, number, reason) for reason in problems_of(record, outline)]
    problems += _of_runs(outline, lines, provenance)
    records = _belonging(outline, lines, provenance)
    problems += _of_data(outline, lines, provenance)
    if not problems:  # a leaderboard of faulty records says nothing
        problems += _of_leaderboard(outline, records, provenance.leaderboard)

    return Checked(folder, tuple(problems), outline, records, provenance)


def _of_file(folder: Path, message: str) -> Problem:
    """Return the problem of an experiment file, whose message may begin with its path and line."""
    parts = re.fullmatch(rf"{re.escape(str(folder / EXPERIMENT))}(?::(\d+))?: (.*)", message, re.DOTALL)
    if parts is None:
        return Problem(EXPERIMENT, None, message.replace(f"{folder}/", ""))
    return Problem(EXPERIMENT, int(parts[1]) if parts[1] else None, parts[2].replace(f"{folder}/", ""))


def _of_experiment(outline: Outline, provenance: Provenance) -> Iterator[Problem]:
    labels = {row.label for row in outline.methods}
    if outline.shipped is not None:
        labels |= {method.architecture.name for method in outline.shipped.methods}
    if FLOORS[0] not in labels or not labels & (_FLOORS - {FLOORS[0]}):
        usual = FLOORS[:2]  # those of data of every kind
        missing = " and ".join(floor for floor in usual if floor not in labels)
        yield Problem(EXPERIMENT, None, f"floors: {missing} missing; write `floors: [{', '.join(usual)}]` and run them")

    files = {plugin.path.name for plugin in outline.plugins}
    for name in sorted(files ^ set(provenance.plugins)):
        lists, lacks = (EXPERIMENT, RESULTS) if name in files else (RESULTS, EXPERIMENT)
        yield Problem(lists, None, f"plugins: {name} is not among those of {lacks}")


def _of_files(folder: Path, provenance: Provenance) -> Iterator[Problem]:
    if records_hash(records_content(folder)) != provenance.records:
        yield Problem(RESULTS, None, f"records: {RECORDS} has another hash; it was changed since")
    for name, stated_hash in provenance.plugins.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            yield Problem(RESULTS, None, f"plugins: {name} is not in the folder")
        elif file_hash(path) != stated_hash:
            yield Problem(name, None, f"has another hash than {RESULTS} says; it was changed since")


_Key = tuple[str, str, int]  # data set, method, seed


def _planned(outline: Outline) -> dict[_Key, bool]:
    """Return the runs of the experiment -> whether they are known by their labels alone."""
    shipped = outline.shipped
    planned = (
        {}
        if shipped is None
        else {
            (dataset.label, method.label, seed): False
            for dataset in shipped.datasets
            for method in shipped.methods_of(dataset)
            for seed in shipped.seeds
        }
    )
    return {**planned, **dict.fromkeys(outline.by_label(), True)}


def _belonging(
    outline: Outline, lines: Sequence[tuple[int, RunRecord]], provenance: Provenance
) -> tuple[RunRecord, ...]:
    """Return the records of the experiment's runs, in the order of its file."""
    by_label = set(outline.by_label())
    records = {record.run_id: record for _, record in lines}
    shipped = () if outline.shipped is None else contributed_records(outline.shipped, records, provenance.data)
    shipped_records = {(record.dataset, record.method, record.seed): record for record in shipped}
    for record in records.values():
        key = (record.dataset, record.method, record.seed)
        if key in by_label:
            shipped_records.setdefault(key, record)

    datasets = {dataset.label: index for index, dataset in enumerate(outline.datasets)}
    methods = {row.label: index for index, row in enumerate(outline.methods)}
    seeds = {seed: index for index, seed in enumerate(outline.seeds)}

    def position(key: _Key) -> tuple[int, int, int]:
        return datasets[key[0]], methods[key[1]], seeds.get(key[2], len(seeds))  # a record may state another seed

    return tuple(shipped_records[key] for key in sorted(shipped_records, key=position))


def _of_runs(outline: Outline, lines: Sequence[tuple[int, RunRecord]], provenance: Provenance) -> Iterator[Problem]:
    """Yield missing runs, and records that belong to no run of the experiment."""
    planned = _planned(outline)
    experiment_records = _belonging(outline, lines, provenance)
    matching_keys = {(record.dataset, record.method, record.seed) for record in experiment_records}
    matching_ids = {record.run_id for record in experiment_records}

    for number, record in lines:
        if record.run_id not in matching_ids:
            run_key = (record.dataset, record.method, record.seed)
            reason = f"is no run of {EXPERIMENT}"
            if run_key in planned:
                reason = "stands twice" if planned[run_key] else other_versions(record)
                reason = reason or f"{EXPERIMENT} gives it other settings"
            yield Problem(RECORDS, number, f"{run_key[0]} · {run_key[1]} · seed {run_key[2]}: {reason}")

        elif planned.get((record.dataset, record.method, record.seed)):
            yield from (Problem(RECORDS, number, reason) for reason in other_settings(record, outline))

    recorded_keys = {(record.dataset, record.method, record.seed) for _, record in lines}
    for run_key in planned:
        is_optional = planned[run_key] and run_key[0] in outline.unknown and run_key[1] in outline.floors
        if run_key not in matching_keys and run_key not in recorded_keys and not is_optional:
            yield Problem(RECORDS, None, f"there is no run {run_key[0]} · {run_key[1]} · seed {run_key[2]}")


def _of_data(outline: Outline, lines: Sequence[tuple[int, RunRecord]], provenance: Provenance) -> Iterator[Problem]:
    datasets = {dataset.label: dataset for dataset in outline.datasets}
    for number, record in lines:
        if record.dataset in datasets:
            name = datasets[record.dataset].prepared(record.seed)
            if record.fingerprint.partition("+")[0] != provenance.data.get(name):
                yield Problem(RECORDS, number, f"fingerprint: not that of {name} in {RESULTS}")


_WITHOUT_PLUGIN = ("runs", "average", "average_ci")  # columns that depend on nothing that a plugin declares


def _of_leaderboard(
    outline: Outline, records: Sequence[RunRecord], claims: Mapping[str, Mapping[str, StatedRow]]
) -> Iterator[Problem]:
    try:
        actual = stated(outline, records)
    except (UserError, LookupError, ValueError, TypeError, ArithmeticError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        yield Problem(RECORDS, None, f"no leaderboard can be made of them: {reason}")
        return

    for dataset in {**actual, **claims}:
        for method in {**actual.get(dataset, {}), **claims.get(dataset, {})}:
            recomputed, claimed = actual.get(dataset, {}).get(method), claims.get(dataset, {}).get(method)
            location = f"leaderboard.{dataset}.{method}"
            if recomputed is None or claimed is None:
                reason = f"is not {'in the records' if recomputed is None else 'there'}"
                yield Problem(RESULTS, None, f"{location}: {reason}")
                continue

            for name, value in recomputed:
                is_comparable = dataset not in outline.unknown or name in _WITHOUT_PLUGIN
                if is_comparable and not _close(value, getattr(claimed, name)):
                    yield Problem(RESULTS, None, f"{location}.{name}: the records make {value}")


def _close(expected: Any, actual: Any) -> bool:
    if isinstance(expected, float) and isinstance(actual, float | int):
        return math.isclose(expected, actual, rel_tol=_CLOSE, abs_tol=_CLOSE)
    return bool(expected == actual)


def conflicts(several: Sequence[Checked]) -> Iterator[tuple[Checked, Problem]]:
    """Yield prepared data sets for which two folders state different fingerprints.

    Equal options and versions must give equal bytes.
    """
    first: dict[str, tuple[Checked, str]] = {}
    for checked in several:
        experiment = None if checked.outline is None else checked.outline.shipped
        if experiment is None or checked.provenance is None:
            continue

        for name, (dataset, seed) in experiment.data().items():
            pipeline = dataset.build(seed)
            options = {knob: getattr(pipeline, knob) for knob in pipeline.knobs()}
            key = json.dumps([dataset.name, type(pipeline).results_version, options], sort_keys=True, default=str)
            fingerprint = checked.provenance.data.get(name, "")

            earlier, earlier_fingerprint = first.setdefault(key, (checked, fingerprint))
            if earlier_fingerprint != fingerprint:
                reason = f"data.{name}: {earlier.folder} has the same data set with another fingerprint"
                yield checked, Problem(RESULTS, None, reason)


def stated(experiment: Experiment | Outline, records: Sequence[RunRecord]) -> dict[str, dict[str, StatedRow]]:
    """Return the leaderboard of these records in numbers: data set -> method -> its row."""
    board = Leaderboard.from_records(
        records, baseline=experiment.baseline, reference=experiment.reference, delta=experiment.delta_of()
    )

    return {
        dataset: {
            str(method): StatedRow(
                runs=int(row["finished"]),
                average=_number(row["average"]),
                average_ci=_number(row["average_ci"]),
                delta=_number(row["delta_i"]),
                delta_ci=_number(row["delta_i_ci"]),
                verdict=row["verdict"] if isinstance(row["verdict"], str) else "",
            )
            for method, row in table.rows.iterrows()
        }
        for dataset, table in board.tables.items()
    }


def _number(value: float) -> float | None:
    return float(f"{value:.10g}") if math.isfinite(value) else None


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
