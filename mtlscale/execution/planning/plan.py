"""Plan of an experiment: its runs, and which of them are still to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from mtlscale.config import DatasetSpec, Experiment, Run, UserError, check_batches, check_delta, fingerprint_with
from mtlscale.data.readers.prepared import Manifest, read_manifest
from mtlscale.data.readers.views import check_noise, check_train_fraction, narrowed
from mtlscale.data.sampling.splits import kept_count
from mtlscale.metrics import check_task, measured
from mtlscale.records import Home, Ledger, RunRecord, read_record

MANY = 5_000  # runs; a plan of more keeps records without epochs: 10 KB a run instead of 40

RunState = Literal["done", "resume", "retry", "new", "same"]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """Run of a plan and its state.

    A run that is `done` is never run again, `resume` has a checkpoint, `retry` failed before, `same` is an earlier one
    of the plan under another label.
    """

    run: Run
    state: RunState
    same_as: str = ""  # the method that it is the same as
    listed: bool = True  # of a run that is done: whether the experiment's own ledger has its record


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment on its prepared data."""

    experiment: Experiment
    runs: tuple[PlannedRun, ...]
    folders: Mapping[str, Path]  # by name of the prepared data
    manifests: Mapping[str, Manifest]
    home: Home | None = None
    ledger: Path = Path()  # where the records of these runs are listed

    @property
    def keeps_epochs(self) -> bool:
        """True if its records stay in memory with their epochs, which take most of the room."""
        return len(self.runs) <= MANY

    @property
    def distinct(self) -> int:
        """The number of runs, with those under two labels counted once."""
        return sum(planned.state != "same" for planned in self.runs)

    def records(self) -> dict[str, RunRecord]:
        """Return run_id -> record of the runs that are done, in the order of the plan; of many, without their epochs.

        Raises:
            UserError: If the ledger is damaged.
        """
        done_runs = {planned.run.run_id: planned for planned in self.runs if planned.state == "done"}
        keep = self.keeps_epochs
        listed = Ledger(self.ledger).latest(epochs=keep) if done_runs else {}

        result = {}
        for run_id, planned in done_runs.items():
            record = listed.get(run_id)
            if record is None or record.status == "failed":
                record = self._record_in_folder(planned)
            result[run_id] = labelled(record if keep else light(record), planned.run)
        return result

    def unlisted(self) -> Iterator[RunRecord]:
        """Return the complete records of the runs that are done and not in the ledger."""
        return (
            self._record_in_folder(planned) for planned in self.runs if planned.state == "done" and not planned.listed
        )

    def _record_in_folder(self, planned: PlannedRun) -> RunRecord:
        """Return the record that a run that is done has left in its own folder."""
        assert self.home is not None
        record = read_record(self.home.run(planned.run.run_id))
        if record is None:
            description = f"{self.ledger}: the record of run {planned.run.run_id}"
            raise UserError(f"{description} cannot be read; remove its line, and the run is run again")
        return labelled(record, planned.run)

    @property
    def todo(self) -> list[PlannedRun]:
        return [planned for planned in self.runs if planned.state not in ("done", "same")]

    def steps(self, run: Run) -> int:
        """Return the training steps of a run with all its phases, if no early stopping cuts it short."""
        spec = run.training
        sizes = [counts.get("train", 0) for counts in self.manifests[run.data].counts.values()]
        epoch_samples = sum(sizes) if spec.batches == "pooled" else max(sizes)
        steps = 0
        for phase in run.parts.phases:
            first = phase.turns[0]
            halved = first.share != "whole" or (first.balancer or run.parts.balancer).needs == "validation"
            samples = -(-epoch_samples // 2) if halved else epoch_samples
            steps += (phase.epochs or spec.epochs) * (spec.steps_per_epoch or -(-samples // spec.batch_size))
        return steps


@dataclass(frozen=True)
class Datasets:
    """The prepared data of an experiment, by name."""

    folders: Mapping[str, Path]
    manifests: Mapping[str, Manifest]

    @classmethod
    def prepare(cls, experiment: Experiment, prepare: Callable[[str], Path]) -> Datasets:
        """Prepare the data of an experiment.

        Args:
            experiment: The experiment.
            prepare: Name of the prepared data -> their folder.

        Raises:
            UserError: For metrics that tasks cannot have.
        """
        datasets = experiment.data()
        folders = {name: prepare(name) for name in datasets}
        manifests = {name: as_asked(read_manifest(folders[name]), dataset) for name, (dataset, _) in datasets.items()}
        reported = {
            dataset.label: [(task.name, metric) for task in manifests[name].suite.tasks for metric in task.metrics]
            for name, (dataset, _) in datasets.items()
        }
        check_delta(experiment.delta_of(), reported)
        return cls(folders, manifests)

    @property
    def fingerprints(self) -> dict[str, str]:
        return {name: fingerprint_of(manifest) for name, manifest in self.manifests.items()}


def fingerprint_of(manifest: Manifest) -> str:
    """Return the fingerprint that runs on these data have: with the metrics that their tasks report."""
    return fingerprint_with(manifest.fingerprint, (name for task in manifest.suite.tasks for name in task.metrics))


def as_asked(manifest: Manifest, dataset: DatasetSpec) -> Manifest:
    """Return the manifest with the tasks and metrics that the experiment asks for.

    Raises:
        UserError: If these, or the experiment's label noise, are impossible.
    """
    suite = narrowed(manifest.suite, dataset.tasks)
    check_noise(suite, dataset.noise, manifest.target_shapes)
    if dataset.metrics:
        suite = measured(suite, dataset.metrics)
    for task in suite.tasks:
        check_task(task)
    check_train_fraction(suite, dataset.train)
    shares = dataset.train if isinstance(dataset.train, dict) else dict.fromkeys(manifest.counts, dataset.train)

    counts = {task.name: dict(manifest.counts[task.name]) for task in suite.tasks}
    for name, of_split in counts.items():
        share = shares.get(name, 1.0)
        if share != 1:  # about this share; exact if no label is missing
            of_split["train"] = kept_count(of_split.get("train", 0), share)
    return manifest.model_copy(update={"suite": suite, "counts": counts})


def make_plan(experiment: Experiment, runs: Iterable[Run], ledger: Path, home: Home, data: Datasets) -> Plan:
    """Plan these runs of the experiment, whose records the file `ledger` lists."""
    status_by_id = {outcome.run_id: outcome.status for outcome in Ledger(ledger).newest().values()}
    planned: list[PlannedRun] = []
    first: dict[str, str] = {}

    for run in runs:
        suite = data.manifests[run.data].suite
        check_batches(run, suite)
        check_preferences(run, len(suite.tasks))
        run_id = run.run_id  # a hash, computed anew each time
        if run_id in first:
            planned.append(PlannedRun(run, "same", first[run_id]))
            continue
        first[run_id] = run.method
        planned.append(_where_it_stands(run, run_id, status_by_id, home))

    return Plan(experiment, tuple(planned), data.folders, data.manifests, home, ledger)


def check_preferences(run: Run, tasks: int) -> None:
    """Raise `UserError` if a run's preference is for another number of tasks, or its balancer lacks one it needs."""
    architecture, balancer = run.parts.architecture, run.parts.balancer
    if "preference" in balancer.hints:
        balancer.init(tasks)
    elif architecture.draws_preferences and tasks > 1:
        raise UserError(
            f"{run.method}: {architecture.name} draws a preference every step, which {balancer.name} does not take; "
            "choose linear_scalarization, cosmos, pbi, epo or pmgda"
        )


def _where_it_stands(run: Run, run_id: str, statuses: Mapping[str, str], home: Home) -> PlannedRun:
    """Return the run with its state; `statuses` is run_id -> status of what the experiment's ledger lists."""
    if statuses.get(run_id) not in (None, "failed"):
        return PlannedRun(run, "done")
    record = read_record(home.run(run_id))
    if record is not None and record.status != "failed":
        return PlannedRun(run, "done", listed=False)  # by another experiment, or just before a crash

    if (home.run(run_id) / "checkpoint.pt").exists():
        return PlannedRun(run, "resume")
    return PlannedRun(run, "new" if record is None and statuses.get(run_id) is None else "retry")


def newest_record(run_id: str, listed: Mapping[str, RunRecord], home: Home) -> RunRecord | None:
    """Return the record of a run: that in the ledger, unless it failed and the run's own folder has a better one.

    The folder has what another experiment, or a task of a job array, has finished.
    """
    record = listed.get(run_id)
    if record is not None and record.status != "failed":
        return record
    in_folder = read_record(home.run(run_id))
    return record if in_folder is None or in_folder.status == "failed" else in_folder


def light(record: RunRecord) -> RunRecord:
    """Return the record without its epochs."""
    return record.model_copy(update={"epochs": []}) if record.epochs else record


def labelled(record: RunRecord, run: Run) -> RunRecord:
    """Return the record under the run's labels: the same run may have others in this experiment or another."""
    labels = {"experiment": run.experiment, "dataset": run.dataset, "method": run.method, "trial": run.trial}
    if all(getattr(record, key) == value for key, value in labels.items()):
        return record
    return record.model_copy(update=labels)
