"""Finding a run by its id, or the beginning of it, among all that a home folder has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.records.home import Home
from mtlscale.records.ledger import Ledger, Outcome
from mtlscale.records.record import RunRecord, read_record
from mtlscale.records.scores import best
from mtlscale.spec import UserError, nearest

_SHOWN = 5  # experiments in a message


@dataclass(frozen=True)
class FoundRun:
    """A run, and where it is known."""

    run_id: str
    record: RunRecord | None  # the newest; None of a run that has not come to an end
    experiments: tuple[str, ...]  # that list it, "NAME (trial)" where it is one of a search
    folder: Path  # its files, if it has left any


def find_run(home: Home, text: str) -> FoundRun:
    """The run whose id begins so. `UserError` where there are none, with the nearest, or several."""
    places: dict[str, list[tuple[Path, Outcome]]] = {}
    for file in sorted((home.root / "experiments").glob("*/*.jsonl")):
        if file.name.startswith(("ledger", "trials")):
            for run_id, outcome in Ledger(file).newest().items():
                places.setdefault(run_id, []).append((file, outcome))
    folders = home.root / "runs"
    known = {*places, *(path.name for path in folders.iterdir() if path.is_dir())} if folders.is_dir() else {*places}
    run_id = _chosen(text, sorted(known), home)
    listed = places.get(run_id, [])
    record = read_record(home.run(run_id))
    if record is None and listed:
        file, outcome = max(listed, key=lambda place: place[1].when)
        record = Ledger(file).read(outcome)
    named = (f"{file.parent.name}{' (trial)' * file.name.startswith('trials')}" for file, _ in listed)
    return FoundRun(run_id, record, tuple(dict.fromkeys(named)), home.run(run_id))


def _chosen(text: str, known: list[str], home: Home) -> str:
    if text in known:
        return text
    found = [run_id for run_id in known if run_id.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - 4} more" if len(found) > 4 else ""
        raise UserError(f"run {text}: {len(found)} begin so, {', '.join(found[:4])}{more}; write more of it")
    raise no_such_run(home, text)


def no_such_run(home: Home, text: str) -> UserError:
    """The error for an id that no run of this home has: ids cannot be guessed, so it names the experiments."""
    names = experiments_with_runs(home)
    if not names:
        what = f"no run {text[:40]} in" if any((home.root / "runs").glob("*")) else "no runs in"
        return UserError(f"{what} {home.root}; name another --home")
    listed = f"{', '.join(names[:_SHOWN])}{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}"
    return UserError(
        f"no run {text[:40]} in {home.root}; it has runs of {listed}: `mtlscale show {names[0]}` lists their ids"
    )


def experiments_with_runs(home: Home) -> list[str]:
    """The names of the experiments that have runs in a home."""
    return sorted(path.parent.name for path in home.root.glob("experiments/*/ledger.jsonl") if path.stat().st_size)


def runs_of_experiment(home: Home, name: str) -> list[RunRecord]:
    """The newest record of every run in the ledger, older settings included, without epochs."""
    return list(Ledger(home.ledger(name)).latest(epochs=False).values())


def best_run(home: Home, name: str, method: str, dataset: str | None = None) -> str:
    """Return the id of the method's run that is best on validation, among those with its newest settings.

    Raises `UserError` for a method or data set without a finished run, and where the method has several data sets.
    """
    done = [record for record in runs_of_experiment(home, name) if record.status == "finished"]
    mine = [record for record in done if record.method == method]
    if not mine:
        raise UserError(
            f"--method {method}: {name} has no finished run of it; {nearest(method, _each(done, 'method'))}"
        )
    datasets = _each(mine, "dataset")
    if dataset is None and len(datasets) > 1:
        raise UserError(f"{method} of {name} has runs on {', '.join(datasets)}; add --dataset {datasets[0]}, say")
    if dataset is not None and dataset not in datasets:
        raise UserError(
            f"--dataset {dataset}: {method} of {name} has no finished run on it; {nearest(dataset, datasets)}"
        )
    mine = [record for record in mine if record.dataset == (dataset or datasets[0])]
    newest = max(mine, key=lambda record: record.finished)
    mine = [record for record in mine if _settings(record) == _settings(newest)]
    return (best(mine) or newest).run_id


def _settings(record: RunRecord) -> dict[str, Any]:
    """What a run did, whatever its seed, and the data's split that an experiment may choose by it."""
    return {key: value for key, value in record.spec.items() if key not in ("seed", "dataset")}


def _each(records: list[RunRecord], field: str) -> list[str]:
    return list(dict.fromkeys(getattr(record, field) for record in records))
