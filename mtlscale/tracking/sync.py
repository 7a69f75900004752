"""Bringing MLflow up to the ledger: writes what a time without a server left out, and nothing twice."""

from __future__ import annotations

from mtlscale.records import Home, Ledger, RunRecord, score
from mtlscale.spec import Experiment, Run
from mtlscale.tracking import Writer


def sync(experiment: Experiment, home: Home) -> tuple[int, int]:
    """Write the experiment's runs and trials that MLflow lacks or has in part: (written, there already).

    Raises `UserError` where no MLflow answers; cut off in the middle, the next call goes on.
    """
    writer = Writer(experiment, home)
    writer.connect()
    there = writer.there()
    runs = _missing(Ledger(home.ledger(experiment.name)), there)
    for record in runs:
        writer.finish(_run(record), record, home.run(record.run_id))
    trials: list[RunRecord] = []
    search = experiment.search
    if search is not None:
        trials = _missing(Ledger(home.trials(experiment.name, search.ledger)), there)
        for record in trials:
            found = score(record, search.metric)
            writer.trial(_run(record), record, None if found is None else found[0])
    reports = sorted(home.experiment(experiment.name).glob("leaderboard.*"))
    writer.close(reports, "FINISHED")
    return len(runs) + len(trials), len(there)


def _missing(ledger: Ledger, there: dict[str, str]) -> list[RunRecord]:
    """The newest records whose outcome MLflow does not have."""
    return [record for run_id, record in ledger.latest().items() if there.get(run_id) != record.status]


def _run(record: RunRecord) -> Run:
    return Run(
        experiment=record.experiment,
        dataset=record.dataset,
        data=record.dataset,
        method=record.method,
        seed=record.seed,
        fingerprint=record.fingerprint,
        spec=record.spec,
        trial=record.trial,
    )
