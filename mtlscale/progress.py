"""How far experiments are: in the log of a job, and on disk."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version

from mtlscale.components import UserError
from mtlscale.experiment import Run
from mtlscale.home import Home
from mtlscale.ledger import Ledger, write_atomically

PROGRESS = "MTLSCALE_PROGRESS"  # set to "lines" in a job: progress as lines that `Progress.read` understands
CLIENT = "MTLSCALE_CLIENT"  # set in a job: the version of the mtlscale that submitted it
PLAN = "plan.json"  # beside the ledger: the runs of the experiment as it was last started


@dataclass(frozen=True)
class Progress:
    """How far a job is, as one line of its log."""

    epochs: int
    of_epochs: int
    runs: int
    of_runs: int

    def __str__(self) -> str:
        return f"progress: {self.epochs}/{self.of_epochs} epochs, {self.runs}/{self.of_runs} runs"

    @classmethod
    def read(cls, line: str) -> Progress | None:
        found = re.fullmatch(r"progress: (\d+)/(\d+) epochs, (\d+)/(\d+) runs\s*", line)
        return None if found is None else cls(*map(int, found.groups()))


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


def write_plan(home: Home, experiment: str, runs: Iterable[Run]) -> None:
    """Note which runs belong to the experiment, so that it can be said how many are left."""
    content = json.dumps({"runs": [run.run_id for run in runs]})
    write_atomically(home.experiment(experiment) / PLAN, content.encode())


def standings(home: Home) -> list[Standing]:
    """All experiments below the home folder, by name; of one without a plan, what its ledger has."""
    found = []
    for folder in sorted((home.root / "experiments").glob("*/")):
        outcomes = {run_id: (state, when) for run_id, state, when in Ledger(home.ledger(folder.name)).outcomes()}
        try:
            planned = json.loads((folder / PLAN).read_bytes())["runs"]
        except (OSError, ValueError, KeyError):
            planned = list(outcomes)
        if not planned:
            continue
        counts = Counter(outcomes[run_id][0] for run_id in planned if run_id in outcomes)
        last = max((outcomes[run_id][1] for run_id in planned if run_id in outcomes), default="")
        found.append(
            Standing(folder.name, len(planned), counts["finished"], counts["failed"], counts["diverged"], last)
        )
    return found


def check_client() -> None:
    """In a submitted job: `UserError` where the cluster has another mtlscale than the machine it was submitted from."""
    there, here = os.environ.get(CLIENT), version("mtlscale")
    if there is not None and there != here:
        raise UserError(
            f"this cluster has mtlscale {here}, the job comes from {there}; install {there} there or submit --with-code"
        )
