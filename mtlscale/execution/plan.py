"""From an experiment to what is still to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtlscale.data.prepared import Manifest, read_manifest
from mtlscale.data.splits import kept
from mtlscale.data.views import check_noise, check_share, narrowed
from mtlscale.metrics import check_task, measured
from mtlscale.records import Home, Ledger, RunRecord, read_record
from mtlscale.spec import DatasetSpec, Experiment, Run, UserError, check_batches, check_delta, fingerprint_with

MANY = 5_000  # runs, of more of which records are kept without their epochs: 40 KB a run become 10

RunState = Literal["done", "resume", "retry", "new", "same"]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run and where it stands: `done` is never run again, `resume` has a checkpoint, `retry` failed before, `same` is
    an earlier one of the plan under another label."""

    run: Run
    state: RunState
    like: str = ""  # the method that it is the same as
    listed: bool = True  # of a run that is done: whether the experiment's own ledger has its record
    former_id: str | None = None  # of a run that an earlier version has done: the id that it had there

    @property
    def record_id(self) -> str:
        """The id that its record and its folder have."""
        return self.former_id or self.run.run_id


@dataclass(frozen=True)
class Plan:
    """All runs of an experiment on its prepared data."""

    experiment: Experiment
    runs: tuple[PlannedRun, ...]
    folders: Mapping[str, Path]  # by name of the prepared data
    manifests: Mapping[str, Manifest]
    home: Home | None = None
    ledger: Path = Path()  # where the records of these runs are listed

    @property
    def keeps_epochs(self) -> bool:
        """Whether its records are kept in memory with their epochs, which take most of their room."""
        return len(self.runs) <= MANY

    @property
    def distinct(self) -> int:
        """How many runs there are, those under two labels counted once."""
        return sum(planned.state != "same" for planned in self.runs)

    def records(self) -> dict[str, RunRecord]:
        """run_id -> record of the runs that are done, in the order of the plan; of many, without their epochs.

        `UserError` where the ledger is damaged.
        """
        done = {planned.run.run_id: planned for planned in self.runs if planned.state == "done"}
        keep = self.keeps_epochs
        listed = Ledger(self.ledger).latest(epochs=keep) if done else {}
        result = {}
        for run_id, planned in done.items():
            record = listed.get(planned.former_id or run_id)
            if record is None or record.status == "failed":
                record = self._left(planned)
            result[run_id] = labelled(record if keep else light(record), planned.run)
        return result

    def unlisted(self) -> Iterator[RunRecord]:
        """Records of the runs that are done and not in the ledger, whole."""
        return (self._left(planned) for planned in self.runs if planned.state == "done" and not planned.listed)

    def _left(self, planned: PlannedRun) -> RunRecord:
        """The record that a run that is done has left in its own folder."""
        assert self.home is not None
        record = read_record(self.home.run(planned.record_id))
        if record is None:
            where = f"{self.ledger}: the record of run {planned.record_id}"
            raise UserError(f"{where} cannot be read; remove its line, and the run is run again")
        return labelled(record, planned.run)

    @property
    def todo(self) -> list[PlannedRun]:
        return [planned for planned in self.runs if planned.state not in ("done", "same")]

    def steps(self, run: Run) -> int:
        """Training steps of a run with all its phases, if no early stopping cuts it short."""
        spec = run.training
        sizes = [counts.get("train", 0) for counts in self.manifests[run.data].counts.values()]
        passed = sum(sizes) if spec.batches == "pooled" else max(sizes)
        steps = 0
        for phase in run.parts.phases:
            first = phase.turns[0]
            halved = first.share != "whole" or (first.balancer or run.parts.balancer).needs == "validation"
            samples = -(-passed // 2) if halved else passed
            steps += (phase.epochs or spec.epochs) * (spec.steps_per_epoch or -(-samples // spec.batch_size))
        return steps


@dataclass(frozen=True)
class Datasets:
    """The prepared data of an experiment, by name."""

    folders: Mapping[str, Path]
    manifests: Mapping[str, Manifest]

    @classmethod
    def prepare(cls, experiment: Experiment, prepare: Callable[[str], Path]) -> Datasets:
        """`prepare`: name of the prepared data -> their folder. `UserError` for metrics that tasks cannot have."""
        wanted = experiment.data()
        folders = {name: prepare(name) for name in wanted}
        manifests = {name: _as_asked(read_manifest(folders[name]), dataset) for name, (dataset, _) in wanted.items()}
        reported = {
            dataset.label: [(task.name, metric) for task in manifests[name].suite.tasks for metric in task.metrics]
            for name, (dataset, _) in wanted.items()
        }
        check_delta(experiment.delta_of(), reported)
        return cls(folders, manifests)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {
            name: fingerprint_with(manifest.fingerprint, (m for task in manifest.suite.tasks for m in task.metrics))
            for name, manifest in self.manifests.items()
        }


def _as_asked(manifest: Manifest, dataset: DatasetSpec) -> Manifest:
    """With the tasks and metrics that the experiment asks for. `UserError` where they, or its noise, cannot be had."""
    suite = narrowed(manifest.suite, dataset.tasks)
    check_noise(suite, dataset.noise, manifest.target_shapes)
    if dataset.metrics:
        suite = measured(suite, dataset.metrics)
    for task in suite.tasks:
        check_task(task)
    check_share(suite, dataset.train)
    shares = dataset.train if isinstance(dataset.train, dict) else dict.fromkeys(manifest.counts, dataset.train)
    counts = {task.name: _of_share(manifest.counts[task.name], shares.get(task.name, 1.0)) for task in suite.tasks}
    return manifest.model_copy(update={"suite": suite, "counts": counts})


def _of_share(counts: Mapping[str, int], share: float) -> dict[str, int]:
    """split -> labelled samples, of training about this share; exact where no label is missing."""
    return dict(counts) if share == 1 else {**counts, "train": kept(counts.get("train", 0), share)}


def make_plan(experiment: Experiment, runs: Iterable[Run], ledger: Path, home: Home, data: Datasets) -> Plan:
    """Where each of these runs of the experiment stands; `ledger`: where their records are listed."""
    known = {outcome.run_id: outcome.status for outcome in Ledger(ledger).newest().values()}
    planned: list[PlannedRun] = []
    first: dict[str, str] = {}
    for run in runs:
        check_batches(run, data.manifests[run.data].suite)
        run_id = run.run_id  # a hash, computed anew each time
        if run_id in first:
            planned.append(PlannedRun(run, "same", first[run_id]))
            continue
        first[run_id] = run.method
        planned.append(_where_it_stands(run, run_id, known, home))
    return Plan(experiment, tuple(planned), data.folders, data.manifests, home, ledger)


def _where_it_stands(run: Run, run_id: str, known: Mapping[str, str], home: Home) -> PlannedRun:
    """`known`: run_id -> status of what the experiment's ledger lists."""
    record = None
    for former_id in (None, run.former_id):
        one = former_id or run_id
        if known.get(one) not in (None, "failed"):
            return PlannedRun(run, "done", former_id=former_id)
        if (found := read_record(home.run(one))) is not None and found.status != "failed":
            # By another experiment, or just before a crash.
            return PlannedRun(run, "done", listed=False, former_id=former_id)
        record = record or found

    if (home.run(run_id) / "checkpoint.pt").exists():
        return PlannedRun(run, "resume")
    return PlannedRun(run, "new" if record is None and known.get(run_id) is None else "retry")


def light(record: RunRecord) -> RunRecord:
    """The record without its epochs."""
    return record.model_copy(update={"epochs": []}) if record.epochs else record


def records_of(experiment: Experiment, home: Home, *, epochs: bool = True) -> tuple[RunRecord, ...]:
    """The newest records of the experiment as its file is now, without preparing anything: runs of earlier versions of
    the file stay in the ledger and are left out. `epochs`: whether anybody will look at the records' epochs; many
    records come without them in any case."""
    epochs = epochs and len(experiment.datasets) * len(experiment.methods) * len(experiment.seeds) <= MANY
    return belonging(experiment, Ledger(home.ledger(experiment.name)).latest(epochs=epochs))


def belonging(experiment: Experiment, known: Mapping[str, RunRecord]) -> tuple[RunRecord, ...]:
    """Of these records by run_id the ones of the experiment's runs, on the data that the last of them were made on."""
    fingerprints = dict.fromkeys(experiment.data(), "")
    datasets = {dataset.label: dataset for dataset in experiment.datasets}
    for record in known.values():
        if record.dataset in datasets:
            # Of a run that failed it is not known what its tasks report.
            names = record.higher_is_better
            known_by = fingerprint_with(record.fingerprint, names) if names else record.fingerprint
            fingerprints[datasets[record.dataset].prepared(record.seed)] = known_by
    if experiment.search is not None:
        return tuple(_winners(experiment, known.values(), fingerprints))
    found = ((known.get(run.run_id) or known.get(run.former_id or ""), run) for run in experiment.runs(fingerprints))
    return tuple(labelled(record, run) for record, run in found if record is not None)


def _winners(
    experiment: Experiment, records: Iterable[RunRecord], fingerprints: Mapping[str, str]
) -> Iterator[RunRecord]:
    """Of each run the newest record, with whatever settings the search had chosen; of a run under several labels, that
    of any."""
    places = {(record.dataset, record.method, record.seed): record for record in records}
    runs = list(experiment.runs(fingerprints))
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(run.run_id, []).append(run)
    for run in runs:
        for other in (run, *alike[run.run_id]):
            record = places.get((other.dataset, other.method, other.seed))
            tuned = None if record is None else run.tuned(record.trial)
            if record is not None and tuned is not None and record.run_id in (tuned.run_id, tuned.former_id):
                yield labelled(record, tuned)
                break


def labelled(record: RunRecord, run: Run) -> RunRecord:
    """The same run may stand under another label, in this experiment or another."""
    labels = {"experiment": run.experiment, "dataset": run.dataset, "method": run.method, "trial": run.trial}
    if all(getattr(record, key) == value for key, value in labels.items()):
        return record
    return record.model_copy(update=labels)
