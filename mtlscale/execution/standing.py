"""How far experiments are, on disk."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from mtlscale.records import Home, Ledger, write_atomically

PLAN = "plan.json"  # beside the ledger: the runs of the experiment as it was last started


@dataclass(frozen=True)
class Standing:
    """Where an experiment stands, by its plan and its ledger."""

    name: str
    runs: int
    done: int
    failed: int
    diverged: int
    last: str  # when its last run ended, ISO 8601

    @property
    def left(self) -> int:
        return self.runs - self.done - self.failed - self.diverged


def write_plan(home: Home, experiment: str, run_ids: Iterable[str]) -> None:
    """Note which runs belong to the experiment, so that it can be said how many are left."""
    content = json.dumps({"runs": list(run_ids)})
    write_atomically(home.experiment(experiment) / PLAN, content.encode())


def standings(home: Home) -> list[Standing]:
    """All experiments below the home folder, by name; of one without a plan, what its ledger has."""
    found = [standing(home, folder.name) for folder in sorted((home.root / "experiments").glob("*/"))]
    return [one for one in found if one.runs]


def standing(home: Home, experiment: str) -> Standing:
    """Where one experiment stands; without runs where it has neither plan nor ledger."""
    outcomes = {run_id: (state, when) for run_id, state, when in Ledger(home.ledger(experiment)).outcomes()}
    try:
        planned = json.loads((home.experiment(experiment) / PLAN).read_bytes())["runs"]
    except (OSError, ValueError, KeyError):
        planned = list(outcomes)
    counts = Counter(outcomes[run_id][0] for run_id in planned if run_id in outcomes)
    last = max((outcomes[run_id][1] for run_id in planned if run_id in outcomes), default="")
    return Standing(experiment, len(planned), counts["finished"], counts["failed"], counts["diverged"], last)
