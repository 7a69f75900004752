"""Lookup of a run by its id, or the beginning of the id, in a home folder."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config import UserError, nearest
from mtlscale.records.home import Home
from mtlscale.records.ledger import Ledger
from mtlscale.records.record import RunRecord, read_epochs, read_record
from mtlscale.records.scores import best

_SHOWN = 5  # experiments in a message


@dataclass(frozen=True)
class FoundRun:
    """The run, with its newest record and the experiments that list it."""

    run_id: str
    record: RunRecord | None  # the newest record, with its epochs; None if the run has not ended
    experiments: tuple[str, ...]  # experiments that list it, "NAME (trial)" if it is a trial of a search
    folder: Path  # the folder of its files, which may not exist


def find_run(home: Home, text: str) -> FoundRun:
    """Return the run whose id begins with a text.

    Raises:
        UserError: If there is no such run, with the nearest ids, or if there are several.
    """
    ledger_entries: dict[str, list[tuple[Path, RunRecord]]] = {}
    for file in sorted((home.root / "experiments").glob("*/*.jsonl")):
        if file.name.startswith(("ledger", "trials")):
            for run_id, record in Ledger(file).latest().items():
                ledger_entries.setdefault(run_id, []).append((file, record))

    folders = home.root / "runs"
    run_ids = (
        {*ledger_entries, *(path.name for path in folders.iterdir() if path.is_dir())}
        if folders.is_dir()
        else {*ledger_entries}
    )
    run_id = _matching_run(text, sorted(run_ids), home)

    entries = ledger_entries.get(run_id, [])
    newest = read_record(home.run(run_id))
    if newest is None and entries:
        newest = max((record for _, record in entries), key=lambda record: record.finished)

    if newest is not None:
        newest = newest.model_copy(update={"epochs": read_epochs(home.run(run_id))})
    experiment_names = (f"{file.parent.name}{' (trial)' * file.name.startswith('trials')}" for file, _ in entries)
    return FoundRun(run_id, newest, tuple(dict.fromkeys(experiment_names)), home.run(run_id))


def _matching_run(text: str, run_ids: list[str], home: Home) -> str:
    if text in run_ids:
        return text
    matches = [run_id for run_id in run_ids if run_id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        remainder = f" and {len(matches) - 4} more" if len(matches) > 4 else ""
        raise UserError(f"run {text}: {len(matches)} begin so, {', '.join(matches[:4])}{remainder}; write more of it")
    raise no_such_run(home, text)


def no_such_run(home: Home, text: str) -> UserError:
    """Return the error for an id that no run of this home has.

    Ids cannot be guessed, so the message names the experiments.
    """
    names = experiments_with_runs(home)
    if not names:
        problem = f"no run {text[:40]} in" if any((home.root / "runs").glob("*")) else "no runs in"
        return UserError(f"{problem} {home.root}; name another --home")

    experiments = f"{', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"
    return UserError(
        f"no run {text[:40]} in {home.root}; it has runs of {experiments}: `mtlscale show {names[0]}` lists their ids"
    )


def experiments_with_runs(home: Home) -> list[str]:
    """List the names of the experiments that have runs in a home."""
    return sorted(path.parent.name for path in home.root.glob("experiments/*/ledger.jsonl") if path.stat().st_size)


def runs_of_experiment(home: Home, name: str) -> list[RunRecord]:
    """Return the newest record of every run in the ledger, older settings included."""
    return list(Ledger(home.ledger(name)).latest().values())


def best_run(records: Iterable[RunRecord], name: str, method: str, dataset: str | None = None) -> str:
    """Return the id of the method's run that is best on validation, among those with its newest settings.

    Args:
        records: The records of the experiment's own runs.
        name: The name of the experiment, for messages.
        method: The method.
        dataset: The data set, if the method has several.

    Raises:
        UserError: For a method or data set without a finished run, and where the method has several data sets.
    """
    finished = [record for record in records if record.status == "finished"]
    candidates = [record for record in finished if record.method == method]
    if not candidates:
        raise UserError(
            f"--method {method}: {name} has no finished run of it; "
            f"{nearest(method, _distinct_values(finished, 'method'))}"
        )

    datasets = _distinct_values(candidates, "dataset")
    if dataset is None and len(datasets) > 1:
        raise UserError(f"{method} of {name} has runs on {', '.join(datasets)}; add --dataset {datasets[0]}, say")
    if dataset is not None and dataset not in datasets:
        raise UserError(
            f"--dataset {dataset}: {method} of {name} has no finished run on it; {nearest(dataset, datasets)}"
        )

    candidates = [record for record in candidates if record.dataset == (dataset or datasets[0])]
    newest = max(candidates, key=lambda record: record.finished)
    candidates = [record for record in candidates if _settings(record) == _settings(newest)]
    return (best(candidates) or newest).run_id


def _settings(record: RunRecord) -> dict[str, Any]:
    """Return a run's settings without its seed and data set, whose split an experiment may choose by the seed."""
    return {key: value for key, value in record.spec.items() if key not in ("seed", "dataset")}


def _distinct_values(records: list[RunRecord], field: str) -> list[str]:
    return list(dict.fromkeys(getattr(record, field) for record in records))
