"""Synchronisation of MLflow with the ledger: what was left out without a server is written, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mtlscale.config import Experiment, UserError
from mtlscale.records import Home, Ledger, RunRecord, score
from mtlscale.tracking.entries import RunUpdate
from mtlscale.tracking.summary_runs import Row
from mtlscale.tracking.writer import Writer


def sync(
    experiment: Experiment,
    home: Home,
    table: Callable[[], list[Row]] = list,
    tell: Callable[[str], None] = lambda text: None,
) -> tuple[int, int]:
    """Write the experiment's runs and trials that MLflow lacks or has in part, and the leaderboard's values.

    Runs that an earlier version has written without rows above them get theirs. If a call is interrupted, the next goes
    on.

    Args:
        experiment: The experiment.
        home: The home with its ledger.
        table: Returns the leaderboard's rows.
        tell: Receives remarks.

    Returns:
        The number of runs written, and of those that MLflow had already.

    Raises:
        UserError: There is no run, or no MLflow answers.
    """
    ledgers = [home.ledger(experiment.name)]
    if experiment.search is not None:
        ledgers.append(home.trials(experiment.name, experiment.search.ledger))
    if not any(ledger.is_file() for ledger in ledgers):
        raise UserError(
            f"no runs of {experiment.name} in {home.root}; start them with `mtlscale run`, or name their --home"
        )

    writer = Writer(experiment, home)
    writer.connect()
    stored = writer.statuses()

    runs = (
        RunUpdate(record.as_run(), record=record, folder=home.run(record.run_id))
        for record in _missing(Ledger(home.ledger(experiment.name)), stored)
    )
    written = _write(writer, runs)

    search = experiment.search
    if search is not None:
        trials = _missing(Ledger(home.trials(experiment.name, search.ledger)), stored)
        written += _write(writer, (_trial(record, search.metric) for record in trials))

    writer.nest()
    rows = table()
    writer.rows(rows)
    reports = sorted(home.experiment(experiment.name).glob("leaderboard.*"))
    writer.close(reports, "FINISHED")
    for reason in writer.models(rows):
        tell(f"no model in MLflow of {reason}")
    tell(f"the methods compared, in MLflow: {writer.address}")

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
