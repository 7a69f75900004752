"""The book of an experiment: which MLflow runs are its own, and which of them are complete."""

from __future__ import annotations

import contextlib
import json

from mtlscale.config import Experiment, without_secrets
from mtlscale.records import Home, ledgers_of, write_atomically
from mtlscale.tracking.service import uri_of


class Book:
    """The file beside the ledger by which a resumed experiment goes on in its MLflow runs.

    Attributes:
        parent: MLflow's id of the experiment's own run.
        runs: Our run id -> MLflow's.
        complete: Our run id -> status, of runs and trials that MLflow has completely.
    """

    def __init__(self, home: Home, experiment: str, uri: str) -> None:
        self._file = home.experiment(experiment) / "mlflow.json"
        # A home may be moved, its own database with it.
        self._uri = "mlflow.db" if uri == home.tracking_uri else without_secrets(uri)
        self.parent: str | None = None
        self.runs: dict[str, str] = {}
        self.complete: dict[str, str] = {}
        self._load()

    def _load(self) -> None:
        try:
            head, *lines = self._file.read_text(encoding="utf-8").splitlines()
            book = json.loads(head)
        except (OSError, ValueError):
            return
        if book.get("uri") != self._uri:
            return
        self.parent, self.runs, self.complete = book["parent"], book["runs"], book.get("complete", {})

        for line in lines:  # of runs written since then
            with contextlib.suppress(ValueError):  # the last one may have been cut off
                run_id, mlflow_id, status = json.loads(line)
                self._enter(run_id, mlflow_id, status)

    def clear(self) -> None:
        """Forget everything: MLflow has lost its database."""
        self.parent, self.runs, self.complete = None, {}, {}

    def save(self) -> None:
        content = {"uri": self._uri, "parent": self.parent, "runs": self.runs, "complete": self.complete}
        write_atomically(self._file, json.dumps(content).encode() + b"\n")

    def note(self, run_id: str, mlflow_id: str, status: str = "") -> None:
        """Append a line: writing the book anew for each run would cost the square of their number."""
        self._enter(run_id, mlflow_id, status)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps([run_id, mlflow_id, status]) + "\n")

    def _enter(self, run_id: str, mlflow_id: str, status: str) -> None:
        self.runs[run_id] = mlflow_id
        if status:
            self.complete[run_id] = status
        else:
            self.complete.pop(run_id, None)  # it has been started again


def lacking(experiment: Experiment, home: Home) -> int:
    """Return how many runs and trials that have ended are not in MLflow, by the book: MLflow is not asked."""
    complete = Book(home, experiment.name, uri_of(experiment, home)).complete
    return sum(
        complete.get(outcome.run_id) != outcome.status
        for ledger in ledgers_of(experiment, home)
        for outcome in ledger.newest().values()
    )
