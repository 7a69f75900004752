"""What was noted of an experiment when it was last started, and how far it has come since."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mtlscale.config.registry.helpers import plugin_hash
from mtlscale.records import Board, Counts, Home, Ledger, Wanted, write_atomically

_DAMAGED = (OSError, ValueError, KeyError, TypeError, AttributeError)
PLAN = "plan.json"  # beside the ledger: the runs of the experiment as it was last started


def write_plan(
    home: Home,
    experiment: str,
    wanted: Iterable[Wanted],
    plugins: Iterable[Path] = (),
    data: Mapping[str, str] | None = None,
) -> None:
    """Note which runs belong to the experiment: how many are left, and which its home's leaderboard shows.

    Args:
        home: The home folder.
        experiment: The name of the experiment.
        wanted: Its runs.
        plugins: Its plugin files, noted with their hashes, so that `rerun` and `export` find them.
        data: Key of a preparation -> fingerprint of its data; these are added to those noted before, so that runs
            are told apart when the prepared data are gone.
    """
    rows = [[planned.run_id, planned.dataset, planned.method, planned.seed] for planned in wanted]
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


def read_plan(home: Home, experiment: str) -> tuple[Wanted, ...] | None:
    """Return the runs of the experiment as it was last started; None if they are not known."""
    with suppress(*_DAMAGED):
        return tuple(Wanted(*row) for row in _read(home.experiment(experiment) / PLAN)["rows"])
    return None


def _read(path: Path) -> Any:
    return json.loads(path.read_bytes())


def board_at_start(home: Home, experiment: str) -> Board:
    """Return the runs that the experiment had when it was last started; all runs of its ledger where nobody noted them.

    The ledger alone says what has become of them.
    """
    ledger = Ledger(home.ledger(experiment))
    rows, noted = ledger.latest(), read_plan(home, experiment)
    wanted = noted or tuple(Wanted(r.run_id, r.dataset, r.method, r.seed) for r in rows.values())
    return Board(wanted, ledger, rows=rows)


def counts_at_start(home: Home, experiment: str) -> Counts:
    """Return how far those runs have come, without what their records say beside it."""
    ended, noted = Ledger(home.ledger(experiment)).endings(), read_plan(home, experiment) or ()
    return Counts.of({planned.run_id for planned in noted} or ended.keys(), ended)


def experiment_counts(home: Home) -> dict[str, Counts]:
    """Return name -> how far it has come, of all experiments below the home folder that have runs."""
    names = sorted(folder.name for folder in (home.root / "experiments").glob("*/"))
    counts = {name: counts_at_start(home, name) for name in names}
    return {name: count for name, count in counts.items() if count.total}
