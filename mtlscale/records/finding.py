"""Finding a run by its id, or the beginning of it, among all that a home folder has."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from mtlscale.records.home import Home
from mtlscale.records.ledger import Ledger, Outcome
from mtlscale.records.record import RunRecord, read_record
from mtlscale.spec import UserError


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
    if not known:
        raise UserError(f"no runs in {home.root}; name their --home")
    begins = {run_id[: len(text)]: run_id for run_id in known}
    close = [begins[one] for one in difflib.get_close_matches(text, begins, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(close)}?" if close else "a leaderboard's page and MLflow name the ids of runs"
    raise UserError(f"no run {text} in {home.root}; {hint}")
