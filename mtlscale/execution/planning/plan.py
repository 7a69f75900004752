"""Plan of an experiment: its runs on its prepared data, and which of them are still to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mtlscale.config import DatasetSpec, Experiment, Run, UserError, check_batches, check_delta, fingerprint_with
from mtlscale.data.readers.prepared import Manifest, read_manifest
from mtlscale.data.readers.reader_selection import OnDisk
from mtlscale.data.readers.views import check_noise, check_train_fraction, narrowed
from mtlscale.data.sampling.splits import kept_count
from mtlscale.metrics import check_task, measured
from mtlscale.records import Board, Home, Ledger, Wanted


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

    def on_disk(self, name: str) -> OnDisk:
        return OnDisk(self.folders[name], self.manifests[name])

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


@dataclass(frozen=True)
class Plan:
    """The runs of an experiment, or the trials of its search, as far as they are known, on its prepared data."""

    experiment: Experiment
    board: Board
    data: Datasets

    @property
    def todo(self) -> list[Run]:
        return [planned.run for planned in self.board.missing if planned.run is not None]

    def steps(self, run: Run) -> int:
        """Return the training steps of a run with all its phases, if no early stopping cuts it short."""
        spec = run.training
        sizes = [counts.get("train", 0) for counts in self.data.manifests[run.data].counts.values()]
        epoch_samples = sum(sizes) if spec.batches == "pooled" else max(sizes)
        steps = 0
        for phase in run.parts.phases:
            first = phase.turns[0]
            halved = first.share != "whole" or (first.balancer or run.parts.balancer).needs == "validation"
            samples = -(-epoch_samples // 2) if halved else epoch_samples
            steps += (phase.epochs or spec.epochs) * (spec.steps_per_epoch or -(-samples // spec.batch_size))
        return steps


def make_plan(experiment: Experiment, runs: Iterable[Run], ledger: Path, home: Home, data: Datasets) -> Plan:
    """Plan these runs of the experiment, whose records the file `ledger` lists."""
    runs = list(runs)
    for run in runs:
        suite = data.manifests[run.data].suite
        check_batches(run, suite)
        check_preferences(run, len(suite.tasks))
    return Plan(experiment, Board(map(Wanted.of, runs), Ledger(ledger), home), data)


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
