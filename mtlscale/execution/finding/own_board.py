"""The runs that an experiment's file means by their ids, and their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mtlscale.config import Experiment, Run
from mtlscale.execution.finding.known_data import KnownData, known_data, recorded_data
from mtlscale.execution.planning.plan import Datasets
from mtlscale.execution.planning.status import write_plan
from mtlscale.execution.sinks import Sinks
from mtlscale.records import Board, Home, Ledger, RunRecord, Wanted


def own_board(experiment: Experiment, home: Home, prepared: Mapping[str, str] | None = None) -> Board:
    """Return the runs that the experiment's file has now with what is known of them, without preparing anything.

    They are those that `mtlscale run` finds done, or failed, wherever the home has them. Runs of earlier versions of
    the file or its data, and of other files with its name, are not among them.

    Args:
        experiment: The experiment.
        home: The home folder with its ledger.
        prepared: Name of prepared data -> fingerprint, where it is known already.
    """
    ledger = Ledger(home.ledger(experiment.name))
    rows = ledger.latest()
    fingerprints = known_data(experiment, home, rows.values(), prepared)
    wanted = map(Wanted.of, _runs(experiment, home, fingerprints, rows.values()))
    return Board(wanted, ledger, home, rows, fingerprints.unsettled)


def note_own_runs(experiment: Experiment, home: Home, data: Datasets, board: Board | None, told: Sinks) -> None:
    """Write down which runs the experiment consists of now, including rows of the file that are not run this time."""
    board = own_board(experiment, home, data.fingerprints) if board is None else board
    if board.rows and board.rows.keys().isdisjoint(planned.run_id for planned in board.wanted):
        count = "1 run" if len(board.rows) == 1 else f"{len(board.rows)} runs"
        told.note(
            f"{experiment.name} has {count} of other settings or data in {home.root}: of an earlier version of its "
            "file, or of another experiment of that name, which needs another `name`; reports leave them out"
        )
    noted = {folder.name: data.manifests[name].fingerprint for name, folder in data.folders.items()}
    write_plan(home, experiment.name, board.wanted, experiment.plugins, noted)


def contributed_records(
    experiment: Experiment, records: Mapping[str, RunRecord], stated: Mapping[str, str]
) -> tuple[RunRecord, ...]:
    """Return the records, out of these by run id, that belong to the experiment's runs, where there is no home.

    `stated` is name of the prepared data -> the fingerprint that counts where records have several.
    """
    fingerprints = recorded_data(experiment, records.values(), stated)
    runs = _runs(experiment, None, fingerprints, records.values())
    return tuple(Wanted.of(run).labelled(records[run.run_id]) for run in runs if run.run_id in records)


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
