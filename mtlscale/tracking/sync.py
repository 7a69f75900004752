"""Synchronisation of MLflow with the ledger: what was left out without a server is written, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable

from mtlscale.config import Experiment, UserError
from mtlscale.records import Home, ledgers_of, score
from mtlscale.tracking.mark import ledger_sizes, mark_written
from mtlscale.tracking.rows import Row
from mtlscale.tracking.service import in_one_line
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
    if not ledger_sizes(experiment, home):
        raise UserError(
            f"no runs of {experiment.name} in {home.root}; start them with `mtlscale run`, or name their --home"
        )

    writer = Writer(experiment, home)
    with in_one_line(writer.uri, "cannot be written"):
        writer.connect()
        writer.load()
        existing = len(writer.ended)
        rows = table()
        written = write_rest(writer, experiment, home, rows, "FINISHED")
        for reason in writer.models(rows):
            tell(f"no model in MLflow of {reason}")
    tell(f"the methods compared, in MLflow: {writer.address}")

    return written, existing


def write_rest(writer: Writer, experiment: Experiment, home: Home, rows: list[Row], status: str) -> int:
    """Write what MLflow lacks, by what the writer has loaded, close it, and mark that MLflow has everything.

    Returns:
        The number of runs and trials written.
    """
    sizes, written = ledger_sizes(experiment, home), 0
    runs, *trials = ledgers_of(experiment, home)
    metric = None if experiment.search is None else experiment.search.metric

    for ledger in (runs, *trials):
        for record in ledger.latest().values():
            if writer.ended.get(record.run_id) == record.status:
                continue
            if ledger is runs:
                writer.write(record.as_run(), record=record)
            else:
                trial_score = score(record, metric)
                writer.trial(record.as_run(), record, None if trial_score is None else trial_score[0])
            written += 1

    writer.rows(rows)
    writer.close(status)
    mark_written(experiment, home, sizes)
    return written
