"""Dry run: what an experiment would do, as far as it can be said without preparing or fetching data."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from mtlscale.config import Experiment, Run, UserError
from mtlscale.data.format.manifest import read_manifest
from mtlscale.data.quality_warnings import remarks
from mtlscale.execution import temp_files
from mtlscale.execution.cluster import cluster
from mtlscale.execution.planning.check import plan_runs, weight_notes
from mtlscale.execution.planning.plan import Datasets, Plan
from mtlscale.execution.preparing.experiment_data import prepare_data
from mtlscale.execution.preparing.prepare import look
from mtlscale.execution.tuning.sweep import SweepPlan, plan_sweep
from mtlscale.records import Home, Storage, check_folder

_PREPARED_BYTES = 2 << 20  # of raw files that a dry run prepares, in a moment


@dataclass(frozen=True)
class DryRun:
    """Dry run of an experiment in two parts: on data that can be looked at, and on data not prepared here."""

    experiment: Experiment
    plan_on_data: Plan | SweepPlan | None
    unknown: tuple[Run, ...]  # without ids; of a search, the base of each method's trials
    why: Mapping[str, str]  # data set -> why nothing is known of it
    lacking: str = ""  # what this machine or cluster has not for a run of its resources
    remarks: Sequence[str] = ()  # what to read before the results

    @property
    def plan(self) -> Plan | None:
        """The runs, or the trials, on data that can be looked at."""
        return self.plan_on_data.plan if isinstance(self.plan_on_data, SweepPlan) else self.plan_on_data


@contextmanager
def sketch(
    experiment: Experiment, *, home: Home, source: Path | None = None, address: str | None = None
) -> Iterator[DryRun]:
    """Say of every run whether it is done, to be resumed, or new.

    Data that a pipeline makes up are there as long as the block lasts, in a temporary folder; nothing else is written.

    Raises:
        UserError: For everything that a run would be refused for, as far as it can be known, but for a machine or
            cluster without room for a run: that is `lacking`.
    """
    check_folder(home.root)
    lacking = _lacking(experiment, address)
    room = _PREPARED_BYTES
    with tempfile.TemporaryDirectory(prefix=temp_files.prefix("sketch")) as scratch:
        folders: dict[str, Path] = {}
        why: dict[str, str] = {}
        remarks_of: dict[str, list[str]] = {}

        for name, (dataset, seed) in experiment.data().items():
            options = asdict(dataset.build(seed))
            raw = source or dataset.source
            folder_or_reason, size = look(dataset.name, options, raw, home.root, Path(scratch), room)
            room -= size
            if isinstance(folder_or_reason, Path):
                folders[name] = folder_or_reason
                if dataset.label not in remarks_of:  # not for each of several splits
                    remarks_of[dataset.label] = list(remarks(dataset.label, read_manifest(folder_or_reason)))
            else:
                why.setdefault(dataset.label, folder_or_reason)

        known_datasets = tuple(dataset for dataset in experiment.datasets if dataset.label not in why)
        unknown_datasets = tuple(dataset for dataset in experiment.datasets if dataset.label in why)

        known_plan = None
        if known_datasets:
            part = experiment.model_copy(update={"datasets": known_datasets})
            data = Datasets.prepare(part, folders.__getitem__)
            known_plan = _planned(part, home, data)

        unknown = _unknown(experiment.model_copy(update={"datasets": unknown_datasets}))
        lines = [line for lines in remarks_of.values() for line in lines]
        if known_plan is not None:
            planned = (
                (planned_run.run for planned_run in known_plan.board.wanted)
                if isinstance(known_plan, Plan)
                else known_plan.bases
            )
            lines += weight_notes(run for run in planned if run is not None)
        yield DryRun(experiment, known_plan, unknown, why, lacking, lines)


def _lacking(experiment: Experiment, address: str | None) -> str:
    """Return why no run fits on this machine or on the named cluster; "" where one does."""
    cluster.named(address)  # one that does not answer is refused
    try:
        cluster.check_fits(experiment.resources, address)
    except UserError as error:
        return str(error)
    return ""


def plan(
    experiment: Experiment,
    home: Home,
    *,
    source: Path | None = None,
    address: str | None = None,
    download: bool = True,
) -> Plan | SweepPlan:
    """Prepare what is not prepared yet, and join the experiment's runs with what is known of them.

    Of an experiment with a search these are its trials: the runs depend on what they find.

    Args:
        experiment: The experiment.
        home: The home folder.
        source: Where the raw data are, if they have to be prepared.
        address: A Ray cluster, which is asked whether a run fits.
        download: Fetch raw data that are not found.

    Raises:
        UserError: For everything that a run would be refused for.
    """
    if home.storage is not None:
        Storage(home.storage).check()
    cluster.check_fits(experiment.resources, address)
    return _planned(experiment, home, prepare_data(experiment, home, source, download))


def _planned(experiment: Experiment, home: Home, data: Datasets) -> Plan | SweepPlan:
    if experiment.search is not None:
        return plan_sweep(experiment, home, data)
    return plan_runs(experiment, experiment.runs(data.fingerprints), home, data)


def _unknown(experiment: Experiment) -> tuple[Run, ...]:
    fingerprints = dict.fromkeys(experiment.data(), "")
    if experiment.search is not None:
        return tuple(experiment.bases(fingerprints))
    return tuple(experiment.runs(fingerprints))
