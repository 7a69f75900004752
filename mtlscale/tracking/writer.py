"""Writing to MLflow: one parent run per experiment, one child per run, and which MLflow runs are ours."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from mtlscale.records import Home, write_atomically
from mtlscale.spec import Experiment
from mtlscale.tracking.entries import (
    SETTINGS,
    Entry,
    Told,
    end_metrics,
    end_tags,
    epoch_metrics,
    files_of,
    milliseconds,
    outcome,
    run_params,
    run_tags,
    trial_entry,
)
from mtlscale.tracking.lanes import lane_of
from mtlscale.tracking.service import check_uri, client_of

_RUNS_PER_PAGE = 1000
_OURS = "tags.`mtlscale.run_id` != ''"


class Writer:
    """Writes one experiment to MLflow; whatever MLflow raises passes through."""

    def __init__(self, experiment: Experiment, home: Home) -> None:
        self._experiment, self._home = experiment, home
        self._uri = experiment.tracking.uri or home.tracking_uri
        check_uri(self._uri)
        self._parent: str | None = None  # MLflow's id of the experiment's own run
        self._runs: dict[str, str] = {}  # our run_id -> MLflow's
        self._written: dict[str, int] = {}  # our run_id -> last epoch written, of all phases
        self._begun: set[str] = set()  # runs that are RUNNING in MLflow because of this driver
        self._holes: set[str] = set()  # resumed runs some of whose epochs no driver wrote: their record has them

    def connect(self) -> None:
        self._client = client_of(self._uri)
        name = self._experiment.name
        found = self._client.get_experiment_by_name(name)
        if found is None:
            local = self._uri.startswith("sqlite:")
            location = (self._home.artifacts / name).as_uri() if local else None
            self._id = self._client.create_experiment(name, artifact_location=location)
        else:
            self._id = found.experiment_id
        self._lane = lane_of(self._client, self._id)
        self._book = self._home.experiment(name) / "mlflow.json"
        self._load_book()
        if self._parent is not None and not self._known(self._parent):
            self._parent, self._runs = None, {}  # the server has lost its database since
        if self._parent is None:
            tags = {
                "mlflow.runName": name,
                "mtlscale.kind": "experiment",
                "mlflow.note.content": self._experiment.description,
            }
            self._parent = self._client.create_run(self._id, tags=tags).info.run_id
        else:
            self._client.update_run(self._parent, status="RUNNING")
            self._adopt()
        self._client.log_text(self._parent, self._experiment.model_dump_json(indent=2), SETTINGS)
        self._save_book()

    def _load_book(self) -> None:
        """Which MLflow runs are ours: written beside the ledger, so that a resumed experiment goes on in them."""
        try:
            head, *lines = self._book.read_text().splitlines()
            book = json.loads(head)
        except (OSError, ValueError):
            return
        if book.get("uri") != self._uri:
            return
        self._parent, self._runs = book["parent"], book["runs"]
        for line in lines:  # of runs since
            with contextlib.suppress(ValueError):  # the last one may have been cut off
                run_id, mine = json.loads(line)
                self._runs[run_id] = mine

    def _adopt(self) -> None:
        """Runs that were begun here and are not in the book: a driver died between the two."""
        begun = f"attributes.status = 'RUNNING' and tags.`mlflow.parentRunId` = '{self._parent}'"
        for run in self._client.search_runs([self._id], f"{begun} and {_OURS}", max_results=_RUNS_PER_PAGE):
            if run.data.tags["mtlscale.kind"] == "run":
                self._runs.setdefault(run.data.tags["mtlscale.run_id"], run.info.run_id)

    def _known(self, run: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            self._client.get_run(run)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return False
            raise
        return True

    def there(self) -> dict[str, str]:
        """run_id -> status of the runs and trials that are written whole.

        `finish` goes on in the runs that are written in part; such trials are removed.
        """
        whole: dict[str, str] = {}
        begun: list[tuple[str, str]] = []
        token = None
        while True:
            page = self._client.search_runs([self._id], _OURS, max_results=_RUNS_PER_PAGE, page_token=token)
            for run in page:
                run_id, status = run.data.tags["mtlscale.run_id"], run.data.tags.get("mtlscale.status")
                # The status of MLflow is written last.
                if status is not None and run.info.status in ("FINISHED", "FAILED"):
                    whole[run_id] = status
                    self._runs[run_id] = run.info.run_id
                elif run.data.tags["mtlscale.kind"] == "trial":
                    self._client.delete_run(run.info.run_id)
                    self._runs.pop(run_id, None)
                else:
                    self._runs.setdefault(run_id, run.info.run_id)
                    begun.append((run_id, run.info.run_id))
            token = page.token
            if not token:
                break
        for run_id, mine in begun:
            if self._runs[run_id] != mine:  # begun twice, by a driver that died before it had noted it
                self._client.delete_run(mine)
        return whole

    def _save_book(self) -> None:
        content = {"uri": self._uri, "parent": self._parent, "runs": self._runs}
        write_atomically(self._book, json.dumps(content).encode() + b"\n")

    def _note(self, run_id: str, mine: str) -> None:
        """A new run, at the end of the book: writing it anew for each would cost the square of the runs."""
        self._runs[run_id] = mine
        with self._book.open("a") as file:
            file.write(json.dumps([run_id, mine]) + "\n")

    @property
    def together(self) -> int:
        """How many runs are best given to one `write`."""
        return self._lane.together

    def write(self, batch: Sequence[Told]) -> None:
        """What is told of these runs, each of them once, in as few calls as there are."""
        entries = [entry for told in batch if (entry := self._entry(told)) is not None]
        self._lane.write(entries, lambda entry: self._note(entry.run_id, entry.mine))
        for told in batch:
            if told.record is None:
                self._begun.add(told.run.run_id)
            else:
                self._begun.discard(told.run.run_id)
                self._holes.discard(told.run.run_id)
                self._written.pop(told.run.run_id, None)

    def _entry(self, told: Told) -> Entry | None:
        run, record, parent = told.run, told.record, str(self._parent)
        run_id = run.run_id
        if told.trial:
            return None if run_id in self._runs else trial_entry(told, parent)
        entry = Entry(run_id, self._runs.get(run_id, ""))
        if not entry.mine:
            entry.tags = run_tags(run, parent, "run")
            entry.started = milliseconds("" if record is None else record.started)
        if run_id not in self._written:
            entry.params = run_params(run)  # the same again does no harm
            self._written[run_id] = last = self._last(entry.mine)
            if entry.mine and told.epochs:
                first = told.epochs[0]
                if run.epochs_behind(first.phase, first.epoch) > last + 1:
                    self._holes.add(run_id)
        epochs = told.epochs if record is None else record.epochs  # those written already are left out
        if record is None and run_id in self._holes:
            epochs = []
        entry.metrics, self._written[run_id] = epoch_metrics(run, epochs, self._written[run_id])
        if record is not None:
            entry.status, entry.ended = outcome(record), milliseconds(record.finished)
            entry.tags |= end_tags(record)
            entry.metrics += end_metrics(run, record)
            entry.files, entry.texts = files_of(told)
        return entry

    def _last(self, mine: str) -> int:
        """The last epoch that an earlier driver wrote of the run."""
        if not mine:
            return 0
        return max((metric.step for metric in self._client.get_metric_history(mine, "epoch_seconds")), default=0)

    def close(self, artefacts: list[Path], status: str) -> None:
        """The experiment's artefacts and status; runs that were begun here and have not ended are KILLED."""
        now = milliseconds()
        cut = [Entry(run_id, self._runs[run_id], status="KILLED", ended=now) for run_id in sorted(self._begun)]
        parent = Entry("", str(self._parent), status=status, ended=now, files=tuple(artefacts))
        self._lane.write([parent, *cut], lambda entry: None)
        self._begun.clear()
        self._save_book()
