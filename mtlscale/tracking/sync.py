"""Synchronisation of MLflow with the ledger: what was left out without a server is written, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mtlscale.config import Experiment, UserError
from mtlscale.records import Home, Ledger, RunRecord, ledgers_of, score
from mtlscale.tracking.entries import RunUpdate
from mtlscale.tracking.service import in_one_line
from mtlscale.tracking.summary_runs import Row
from mtlscale.tracking.writer import Writer


def sync(
    experiment: Experiment,
    home: Home,
    table: Callable[[], list[Row]] = list,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[int, int]:
    """Write the experiment's runs and trials that MLflow lacks or has in part, and the leaderboard's values.

    If a call is interrupted, the next goes on.

    Args:
        tell: Receives remarks.

    Returns:
        The number of runs written, and of those that MLflow had already.

    Raises:
        UserError: There is no run, or no MLflow answers.
    """
    if not any(ledger.path.is_file() for ledger in ledgers_of(experiment, home)):
        raise UserError(
            f"no runs of {experiment.name} in {home.root}; start them with `mtlscale run`, or name their --home"
        )

    writer = Writer(experiment, home)
    with in_one_line(writer.uri, "cannot be written"):
        writer.connect()
        written, existing = write_missing(writer, experiment, home)
        rows = table()
        writer.rows(rows)
        reports = sorted(home.experiment(experiment.name).glob("leaderboard.*"))
        writer.close(reports, "FINISHED")
        for reason in writer.models(rows):
            tell(f"no model in MLflow of {reason}")
    tell(f"the methods compared, in MLflow: {writer.address}")

    return written, existing


def write_missing(writer: Writer, experiment: Experiment, home: Home) -> tuple[int, int]:
    """Write the runs and trials of the ledgers that MLflow lacks or has in part; the writer is connected.

    Returns:
        The number of runs and trials written, and of those that MLflow had already.
    """
    runs, *trials = ledgers_of(experiment, home)
    stored = writer.statuses()
    updates = (
        RunUpdate(record.as_run(), record=record, folder=home.run(record.run_id)) for record in _missing(runs, stored)
    )
    written = _write(writer, updates)
    for ledger in trials:
        metric = None if experiment.search is None else experiment.search.metric
        written += _write(writer, (_trial(record, metric) for record in _missing(ledger, stored)))
    return written, len(stored)


def _write(writer: Writer, updates: Iterator[RunUpdate]) -> int:
    written = 0
    for update in updates:
        writer.write(update)
        written += 1
    return written


def _missing(ledger: Ledger, statuses: dict[str, str]) -> Iterator[RunRecord]:
    """Yield the newest records whose outcome MLflow lacks, one by one: a large ledger does not fit into memory."""
    newest = {run_id: (status, finished) for run_id, status, finished in ledger.outcomes()}
    missing = {run_id: outcome for run_id, outcome in newest.items() if statuses.get(run_id) != outcome[0]}
    for record in ledger.records() if missing else ():
        if missing.get(record.run_id) == (record.status, record.finished):
            del missing[record.run_id]
            yield record


def _trial(record: RunRecord, metric: str | None) -> RunUpdate:
    trial_score = score(record, metric)
    return RunUpdate(record.as_run(), record=record, trial=True, score=None if trial_score is None else trial_score[0])
