"""Validation of contributed results by somebody who has neither their runs nor their machine."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mtlscale.config import RESULTS_VERSION, Experiment, UserError, fingerprint_with, load_experiment
from mtlscale.config.experiment.experiment import FLOORS
from mtlscale.execution.planning.plan import belonging
from mtlscale.metrics import possible
from mtlscale.records import RunRecord
from mtlscale.records.submission_schema import (
    EXPERIMENT,
    RECORDS,
    RESULTS,
    Problem,
    Provenance,
    StatedRow,
    read_lines,
    read_provenance,
    records_hash,
)
from mtlscale.report.tables.leaderboard import Leaderboard

_CLOSE = 1e-6  # relative: leaderboards are added up in another order elsewhere


@dataclass(frozen=True)
class Checked:
    """The content of a folder of contributed results, and all its problems."""

    folder: Path
    problems: tuple[Problem, ...]
    experiment: Experiment | None = None
    records: tuple[RunRecord, ...] = field(default=(), repr=False)  # of its runs, in their order
    provenance: Provenance | None = None


def check(folder: Path) -> Checked:
    """Read contributed results and list all their problems.

    Raises:
        UserError: If the folder holds no contributed results.
    """
    lines, line_problems = read_lines(folder)
    provenance = read_provenance(folder)
    if isinstance(provenance, Problem):
        return Checked(folder, (*line_problems, provenance))

    problems = [*line_problems, *_of_files(folder, provenance)]
    if provenance.results_version != RESULTS_VERSION:
        reason = f"results_version is {provenance.results_version}, of this mtlscale {RESULTS_VERSION}"
        problems.append(
            Problem(RESULTS, None, f"{reason}: check it with version {provenance.versions['mtlscale'][-1]}")
        )
        return Checked(folder, tuple(problems), provenance=provenance)

    try:
        experiment = load_experiment(folder / EXPERIMENT)
    except UserError as error:
        problems.append(Problem(EXPERIMENT, None, str(error).replace(f"{folder}/", "")))
        return Checked(folder, tuple(problems), provenance=provenance)

    missing = set(FLOORS) - {method.architecture.name for method in experiment.methods}
    if missing:
        problems.append(Problem(EXPERIMENT, None, f"floors: {' and '.join(sorted(missing))} are not among the methods"))

    for number, record in lines:
        problems += [Problem(RECORDS, number, reason) for reason in _of_record(record)]
    problems += _of_runs(experiment, lines)
    records = belonging(experiment, {record.run_id: record for _, record in lines})
    problems += _of_data(experiment, lines, provenance)
    if not problems:  # a leaderboard of faulty records says nothing
        problems += _of_leaderboard(stated(experiment, records), provenance.leaderboard)

    return Checked(folder, tuple(problems), experiment, records, provenance)


def _of_files(folder: Path, provenance: Provenance) -> Iterator[Problem]:
    if records_hash((folder / RECORDS).read_bytes()) != provenance.records:
        yield Problem(RESULTS, None, f"records: {RECORDS} has another hash; it was changed since")
    for name, stated_hash in provenance.plugins.items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            yield Problem(RESULTS, None, f"plugins: {name} is not in the folder")
        elif file_hash(path) != stated_hash:
            yield Problem(name, None, f"has another hash than {RESULTS} says; it was changed since")


def _of_record(record: RunRecord) -> Iterator[str]:
    """Yield the contradictions within a single record."""
    names = record.higher_is_better  # unknown for a failed run
    fingerprint = fingerprint_with(record.fingerprint, names) if names else record.fingerprint
    run = record.model_copy(update={"fingerprint": fingerprint, "trial": {}}).as_run()
    try:
        run_id = run.run_id
    except (KeyError, TypeError, AttributeError) as error:
        yield f"spec: is not that of a run ({type(error).__name__}: {error})"
        return

    if run_id != record.run_id:
        yield f"run_id is {record.run_id}, but spec and fingerprint make {run_id}"
    if record.spec.get("seed") != record.seed:
        yield f"seed is {record.seed}, but spec says {record.spec.get('seed')}"

    if record.status != "finished":
        if not record.error:
            yield f"status is {record.status} without an error"
        return

    for split in ("val", "test"):
        if not record.metrics.get(split):
            yield f"metrics: there are none on {split}"
    for section, splits in (("metrics", record.metrics), ("last", record.last)):
        for split, tasks in splits.items():
            for task, metrics in tasks.items():
                yield from (f"{section}.{split}.{task}.{complaint}" for complaint in _impossible(metrics, record))

    max_epochs = record.spec.get("training", {}).get("epochs")
    chosen_epochs = [record.chosen_epoch] if record.chosen_epoch is not None else list(record.chosen_epochs.values())
    if not chosen_epochs:
        yield "chosen_epoch: no epoch was chosen on validation"
    elif (
        not record.phases
        and isinstance(max_epochs, int)
        and not all(1 <= epoch <= max_epochs for epoch in chosen_epochs)
    ):
        yield f"chosen_epoch: {max(chosen_epochs)} is none of the {max_epochs} epochs of training"


def _impossible(metrics: Mapping[str, float], record: RunRecord) -> Iterator[str]:
    for metric, value in metrics.items():
        if metric == "loss":
            plausible = math.isfinite(value)
        elif metric not in record.higher_is_better:
            yield f"{metric}: higher_is_better does not name it"
            continue
        else:
            try:
                plausible = possible(metric, value)
            except UserError as error:
                yield str(error)
                continue

        if not plausible:
            yield f"{metric}: {value:g} is not possible"


def _of_runs(experiment: Experiment, lines: Sequence[tuple[int, RunRecord]]) -> Iterator[Problem]:
    """Yield missing runs, and records that belong to no run of the experiment."""
    records_by_id = {record.run_id: record for _, record in lines}
    experiment_records = belonging(experiment, records_by_id)
    matching_keys = {(record.dataset, record.method, record.seed) for record in experiment_records}
    matching_ids = {record.run_id for record in experiment_records}
    planned_keys = [
        (dataset.label, method.label, seed)
        for dataset in experiment.datasets
        for method in experiment.methods_of(dataset)
        for seed in experiment.seeds
    ]

    for number, record in lines:
        if record.run_id not in matching_ids:
            run_key = (record.dataset, record.method, record.seed)
            reason = (
                f"{EXPERIMENT} gives it other settings" if run_key in planned_keys else f"is no run of {EXPERIMENT}"
            )
            yield Problem(RECORDS, number, f"{run_key[0]} · {run_key[1]} · seed {run_key[2]}: {reason}")

    recorded_keys = {(record.dataset, record.method, record.seed) for _, record in lines}
    for run_key in planned_keys:
        if run_key not in matching_keys and run_key not in recorded_keys:
            yield Problem(RECORDS, None, f"there is no run {run_key[0]} · {run_key[1]} · seed {run_key[2]}")


def _of_data(
    experiment: Experiment, lines: Sequence[tuple[int, RunRecord]], provenance: Provenance
) -> Iterator[Problem]:
    datasets = {dataset.label: dataset for dataset in experiment.datasets}
    for number, record in lines:
        if record.dataset in datasets:
            name = datasets[record.dataset].prepared(record.seed)
            if record.fingerprint.partition("+")[0] != provenance.data.get(name):
                yield Problem(RECORDS, number, f"fingerprint: not that of {name} in {RESULTS}")


def _of_leaderboard(
    actual: Mapping[str, Mapping[str, StatedRow]], stated: Mapping[str, Mapping[str, StatedRow]]
) -> Iterator[Problem]:
    for dataset in {**actual, **stated}:
        for method in {**actual.get(dataset, {}), **stated.get(dataset, {})}:
            recomputed, claimed = actual.get(dataset, {}).get(method), stated.get(dataset, {}).get(method)
            location = f"leaderboard.{dataset}.{method}"
            if recomputed is None or claimed is None:
                yield Problem(
                    RESULTS, None, f"{location}: is not {'in the records' if recomputed is None else 'there'}"
                )
                continue

            for name, value in recomputed:
                if not _close(value, getattr(claimed, name)):
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
        if checked.experiment is None or checked.provenance is None:
            continue

        for name, (dataset, seed) in checked.experiment.data().items():
            pipeline = dataset.build(seed)
            options = {knob: getattr(pipeline, knob) for knob in pipeline.knobs()}
            key = json.dumps([dataset.name, type(pipeline).results_version, options], sort_keys=True, default=str)
            fingerprint = checked.provenance.data.get(name, "")

            earlier, earlier_fingerprint = first.setdefault(key, (checked, fingerprint))
            if earlier_fingerprint != fingerprint:
                reason = f"data.{name}: {earlier.folder} has the same data set with another fingerprint"
                yield checked, Problem(RESULTS, None, reason)


def stated(experiment: Experiment, records: Sequence[RunRecord]) -> dict[str, dict[str, StatedRow]]:
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
