"""The records of an experiment's own runs: those that its file, or its last start, means by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mtlscale.config import Experiment, Run
from mtlscale.execution.finding.known_data import KnownData, known_data, recorded_data
from mtlscale.execution.planning.plan import MANY, labelled, light, newest_record
from mtlscale.execution.planning.status import PlanEntry, read_plan
from mtlscale.records import Home, Ledger, RunRecord


@dataclass(frozen=True)
class OwnRecords:
    """The newest records of an experiment's own runs, in the order of its file.

    `unsettled` says of data sets in a line why none of their records is among them although some may be.
    """

    records: tuple[RunRecord, ...]
    unsettled: Mapping[str, str] = field(default_factory=dict)


def own_records(
    experiment: Experiment, home: Home, *, epochs: bool = True, prepared: Mapping[str, str] | None = None
) -> OwnRecords:
    """Return the records of the runs that the experiment's file has now, without preparing anything.

    They are those that `mtlscale run` finds done, or failed, wherever the home has them. Runs of earlier versions of
    the file or its data, and of other files with its name, are left out.

    Args:
        experiment: The experiment.
        home: The home folder with its ledger.
        epochs: Load the records with their epochs; many records come without them in any case.
        prepared: Name of prepared data -> fingerprint, where it is known already.
    """
    epochs = epochs and len(experiment.datasets) * len(experiment.methods) * len(experiment.seeds) <= MANY
    listed = Ledger(home.ledger(experiment.name)).latest(epochs=epochs)
    known = known_data(experiment, home, listed.values(), prepared)

    records = []
    for run in _runs(experiment, home, known, listed.values()):
        record = newest_record(run.run_id, listed, home)
        if record is not None:
            records.append(labelled(record if epochs else light(record), run))
    return OwnRecords(tuple(records), known.unsettled)


def own_entries(experiment: Experiment, home: Home, prepared: Mapping[str, str]) -> list[PlanEntry]:
    """Return the runs that the experiment's file has now, as far as the home knows their data.

    `prepared` is name of prepared data -> fingerprint, where it is known already.
    """
    records = Ledger(home.ledger(experiment.name)).latest(epochs=False).values()
    known = known_data(experiment, home, records, prepared)
    runs = _runs(experiment, home, known, records)
    return [PlanEntry(run.run_id, run.dataset, run.method, run.seed) for run in runs]


@dataclass(frozen=True)
class StartedRecords:
    """The records under an experiment's name, apart by whether they were its runs when it was last started."""

    own: tuple[RunRecord, ...]  # under the labels that they had then
    others: tuple[RunRecord, ...] = ()  # of other settings or data
    entries: tuple[PlanEntry, ...] = ()  # its runs; none if nothing says which they were, and all records are its own


def records_at_start(home: Home, experiment: str, *, epochs: bool = True) -> StartedRecords:
    """Return the records of the runs that the experiment had when it was last started, and all others of its name."""
    records = Ledger(home.ledger(experiment)).latest(epochs=epochs)
    entries = read_plan(home, experiment) or ()
    own = tuple(
        records[entry.run_id].model_copy(update={"dataset": entry.dataset, "method": entry.method})
        for entry in entries
        if entry.run_id in records
    )
    if not entries:
        return StartedRecords(tuple(records.values()))
    own_ids = {entry.run_id for entry in entries}
    return StartedRecords(own, tuple(r for run_id, r in records.items() if run_id not in own_ids), entries)


def contributed_records(
    experiment: Experiment, records: Mapping[str, RunRecord], stated: Mapping[str, str]
) -> tuple[RunRecord, ...]:
    """Return the records, out of these by run id, that belong to the experiment's runs, where there is no home.

    `stated` is name of the prepared data -> the fingerprint that counts where records have several.
    """
    known = recorded_data(experiment, records.values(), stated)
    runs = _runs(experiment, None, known, records.values())
    return tuple(labelled(records[run.run_id], run) for run in runs if run.run_id in records)


def _runs(experiment: Experiment, home: Home | None, known: KnownData, records: Iterable[RunRecord]) -> Iterator[Run]:
    """Yield the runs whose data are known, with the settings that a search has chosen so far."""
    search, winners = experiment.search, None
    if search is not None and home is not None:
        from mtlscale.execution.tuning.sweep import winners_so_far

        winners = winners_so_far(experiment, home, known.fingerprints)

    runs = [run for run in experiment.runs(known.fingerprints, winners) if run.fingerprint]
    yield from runs if search is None or winners is not None else _as_recorded(runs, records)


def _as_recorded(runs: Sequence[Run], records: Iterable[RunRecord]) -> Iterator[Run]:
    """Yield runs with the settings of their newest record, where no trials say what the search has chosen."""
    # A run under several labels takes the record of any of them.
    records_by_label: dict[tuple[str, str, int], list[RunRecord]] = {}
    for record in records:
        records_by_label.setdefault((record.dataset, record.method, record.seed), []).append(record)
    runs_by_id: dict[str, list[Run]] = {}
    for run in runs:
        runs_by_id.setdefault(run.run_id, []).append(run)

    for run in runs:
        labels = [(same.dataset, same.method, same.seed) for same in (run, *runs_by_id[run.run_id])]
        newest_first = (record for label in labels for record in reversed(records_by_label.get(label, [])))
        tuned_runs = ((run.tuned(record.trial), record.run_id) for record in newest_first)
        yield next((tuned for tuned, run_id in tuned_runs if tuned.run_id == run_id), run)
