"""Status of experiments, as it is on disk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtlscale.config.registry.helpers import plugin_hash
from mtlscale.records import Home, Ledger, write_atomically

_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError)
PLAN = "plan.json"  # beside the ledger: the runs of the experiment as it was last started


@dataclass(frozen=True)
class ExperimentStatus:
    """The status of an experiment, by its plan and its ledger."""

    name: str
    runs: int
    done: int
    failed: int
    diverged: int
    last: str  # when its last run ended, ISO 8601

    @property
    def remaining(self) -> int:
        return self.runs - self.done - self.failed - self.diverged


@dataclass(frozen=True)
class PlanEntry:
    """Run of an experiment as it was last started, under the labels that it has there."""

    run_id: str
    dataset: str
    method: str
    seed: int


def write_plan(
    home: Home,
    experiment: str,
    entries: Iterable[PlanEntry],
    plugins: Iterable[Path] = (),
    data: Mapping[str, str] | None = None,
) -> None:
    """Note which runs belong to the experiment: how many are left, and which its home's leaderboard shows.

    Args:
        home: The home folder.
        experiment: The name of the experiment.
        entries: Its runs.
        plugins: Its plugin files, noted with their hashes, so that `rerun` and `export` find them.
        data: Key of a preparation -> fingerprint of its data; these are added to those noted before, so that runs
            are told apart when the prepared data are gone.
    """
    rows = [[entry.run_id, entry.dataset, entry.method, entry.seed] for entry in entries]
    content = {
        "rows": rows,
        "plugins": {str(path.absolute()): plugin_hash(path, path.read_bytes()) for path in plugins},
        "data": {**read_data(home, experiment), **(data or {})},
    }
    write_atomically(home.experiment(experiment) / PLAN, json.dumps(content).encode())


def read_plugins(home: Home, experiment: str) -> dict[Path, str]:
    """Return the plugin files of the experiment as it was last started, each with its hash at that time."""
    with suppress(*_DAMAGED):
        noted = _read(home.experiment(experiment) / PLAN)["plugins"]
        return {Path(path): str(digest) for path, digest in noted.items()}
    return {}


def read_data(home: Home, experiment: str = "*") -> dict[str, str]:
    """Return key of a preparation -> fingerprint of its data, of all data that experiments of the home have run on.

    A key stands for the same source and options whichever experiment has noted it.
    """
    noted: dict[str, str] = {}
    for path in sorted(home.root.glob(f"experiments/{experiment}/{PLAN}")):
        with suppress(*_DAMAGED):
            noted |= {str(key): str(value) for key, value in _read(path)["data"].items()}
    return noted


def read_plan(home: Home, experiment: str) -> tuple[PlanEntry, ...] | None:
    """Return the runs of the experiment as it was last started; None if they are not known."""
    with suppress(*_DAMAGED):
        return tuple(PlanEntry(*row) for row in _read(home.experiment(experiment) / PLAN)["rows"])
    return None


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def experiment_statuses(home: Home) -> list[ExperimentStatus]:
    """Return the status of all experiments below the home folder, by name; without a plan, that of the ledger."""
    statuses = [experiment_status(home, folder.name) for folder in sorted((home.root / "experiments").glob("*/"))]
    return [status for status in statuses if status.runs]


def experiment_status(home: Home, experiment: str, own_ids: frozenset[str] = frozenset()) -> ExperimentStatus:
    """Return the status of one experiment; without runs where it has neither plan nor ledger.

    `own_ids` are the runs that its file has now, which count where it was last started with none of them.
    """
    outcomes = {run_id: (state, when) for run_id, state, when in Ledger(home.ledger(experiment)).outcomes()}
    plan = read_plan(home, experiment)
    planned = list(outcomes) if plan is None else list(dict.fromkeys(entry.run_id for entry in plan))
    if own_ids and own_ids.isdisjoint(planned):
        planned = list(own_ids)
    counts = Counter(outcomes[run_id][0] for run_id in planned if run_id in outcomes)
    last = max((outcomes[run_id][1] for run_id in planned if run_id in outcomes), default="")
    return ExperimentStatus(experiment, len(planned), counts["finished"], counts["failed"], counts["diverged"], last)
