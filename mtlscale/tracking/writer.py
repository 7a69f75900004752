"""Log of params and metrics to MLflow: one parent run, one child per run, and which MLflow runs are ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mtlscale.config import Experiment, UserError, without_secrets
from mtlscale.records import Home
from mtlscale.tracking import page
from mtlscale.tracking.book import Book
from mtlscale.tracking.calls import sound_value, write_entry
from mtlscale.tracking.entries import (
    MODEL,
    SETTINGS,
    Entry,
    RunUpdate,
    about,
    end_tags,
    files_of,
    inputs_of,
    milliseconds,
    outcome,
    row_name,
    run_params,
    run_tags,
    trial_entry,
)
from mtlscale.tracking.models import log_model
from mtlscale.tracking.reader import pages
from mtlscale.tracking.service import check_artifact_store, check_uri, client_of, relocate, uri_of
from mtlscale.tracking.summary_runs import Row, RunKey, SummaryRuns
from mtlscale.tracking.values import end_metrics, epoch_metrics

_ABOVE, _OWNER, _NOTE = "mlflow.parentRunId", "mtlscale.owner", "mlflow.note.content"
_OURS = "tags.`mtlscale.run_id` != ''"


class Writer:
    """Writer of one experiment to MLflow; whatever MLflow raises passes through."""

    def __init__(self, experiment: Experiment, home: Home) -> None:
        self._experiment, self._home = experiment, home
        self.uri = uri_of(experiment, home)
        self.word = check_uri(self.uri)  # remark on the server, if any
        self._written: dict[str, int] = {}  # our run_id -> last epoch written, of all phases
        self._begun: set[str] = set()  # runs that are RUNNING in MLflow because of this driver
        self._holes: set[str] = set()  # resumed runs some of whose epochs no driver wrote: their record has them

    def connect(self) -> None:
        self._client, self._about = client_of(self.uri), about()
        name = self._experiment.name
        self._id = self._open(name)

        self._book = book = Book(self._home, name, self.uri)
        if book.parent is not None and not self._restored(book.parent):
            book.clear()  # the server has lost its database since

        if book.parent is None:
            tags = {
                "mlflow.runName": f"{name} · report",
                "mtlscale.kind": "experiment",
                _NOTE: sound_value(self._experiment.description),
                **self._about,
            }
            book.parent = self._client.create_run(self._id, tags=tags).info.run_id
        else:
            self._client.update_run(book.parent, status="RUNNING")
            self._adopt()

        self._parent = str(book.parent)
        self._rows = SummaryRuns(self._parent, self._about)
        self._rows.load(self._client, self._id)
        self._client.log_text(self._parent, self._experiment.model_dump_json(indent=2), SETTINGS)
        book.save()

    def _open(self, name: str) -> str:
        """Return MLflow's id of the experiment, with a view of its rows; create or restore it where it is missing."""
        is_database = not self.uri.startswith(("http", "databricks"))
        location = (self._home.artifacts / name).as_uri() if is_database else None
        stored = self._client.get_experiment_by_name(name) or self._created(name, location)
        experiment_id: str = stored.experiment_id
        if stored.lifecycle_stage == "deleted":  # in MLflow's pages, which keep it
            self._client.restore_experiment(experiment_id)
        check_artifact_store(stored.artifact_location)
        if self.uri == self._home.tracking_uri and stored.artifact_location != location:
            relocate(self.uri, stored.artifact_location, str(location))

        tags = page.experiment_tags()
        if _NOTE not in stored.tags:
            tags[_NOTE] = sound_value(page.note(experiment_id, self._experiment.description))
        for key, value in tags.items():
            if stored.tags.get(key) != value:
                self._client.set_experiment_tag(experiment_id, key, value)
        return experiment_id

    def _created(self, name: str, location: str | None) -> Any:
        """Create an experiment, unless another driver has just done so; return it."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.create_experiment(name, artifact_location=location)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return self._client.get_experiment_by_name(name)

    @property
    def address(self) -> str:
        """The address of the table of methods, or the path to type behind that of `mlflow ui`."""
        route = page.route(self._id)
        return f"{without_secrets(self.uri).rstrip('/')}/{route}" if self.uri.startswith("http") else f"/{route}"

    def _adopt(self) -> None:
        """Adopt runs that were started here but are not in the book, because a driver died between the two."""
        for run in pages(self._client, [self._id], f"attributes.status = 'RUNNING' and {_OURS}"):
            if run.data.tags["mtlscale.kind"] == "run" and self._owns(run):
                self._book.runs.setdefault(run.data.tags["mtlscale.run_id"], run.info.run_id)

    def _owns(self, run: Any) -> bool:
        """Return whether a run is of this home: others may write experiments of this name to the same server."""
        return self._book.parent in (run.data.tags.get(_OWNER), run.data.tags.get(_ABOVE))

    def _restored(self, run: str) -> bool:
        """Return whether MLflow has a run, and bring it back if somebody deleted it in the pages."""
        stage = self._stage(run)
        if stage == "deleted":
            self._client.restore_run(run)
        return stage is not None

    def _stage(self, run: str) -> str | None:
        """Return whether a run is `active` or `deleted`; None if MLflow knows it no more."""
        from mlflow.exceptions import MlflowException

        try:
            return str(self._client.get_run(run).info.lifecycle_stage)
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return None
            raise

    def statuses(self) -> dict[str, str]:
        """Return run_id -> status of the runs and trials that are written completely, whoever did.

        `write` goes on in the runs of this home that are written in part; such trials are removed.
        """
        complete: dict[str, str] = {}
        started: list[tuple[str, str]] = []
        partial: list[str] = []
        runs: dict[str, str] = {}

        for run in pages(self._client, [self._id], _OURS):
            run_id, status = run.data.tags["mtlscale.run_id"], run.data.tags.get("mtlscale.status")
            # The status of MLflow is written last.
            if status is not None and run.info.status in ("FINISHED", "FAILED"):
                complete[run_id] = status
                runs[run_id] = run.info.run_id
            elif not self._owns(run):
                continue  # somebody writes it
            elif run.data.tags["mtlscale.kind"] == "trial":
                partial.append(run.info.run_id)  # removed later: pages are counted from the first run
            else:
                started.append((run_id, run.info.run_id))

        started_ids = {mlflow_id for _, mlflow_id in started}
        for run_id, mlflow_id in started:
            noted = self._book.runs.get(run_id)
            runs.setdefault(run_id, noted if noted in started_ids else mlflow_id)
        # Started twice, by a driver that died before it noted the run.
        partial += [mlflow_id for run_id, mlflow_id in started if runs[run_id] != mlflow_id]
        for mlflow_id in partial:
            self._client.delete_run(mlflow_id)
        self._book.runs, self._book.complete = runs, dict(complete)
        return complete

    def write(self, update: RunUpdate) -> None:
        """Write the update of a run; make the run anew if somebody deleted it in MLflow."""
        from mlflow.exceptions import MlflowException

        run_id = update.run.run_id
        try:
            self._write(update)
        except MlflowException:
            mlflow_id = self._book.runs.get(run_id)
            if mlflow_id is None or self._stage(mlflow_id) == "active":
                raise
            del self._book.runs[run_id]
            self._written.pop(run_id, None)
            self._write(update)

    def _write(self, update: RunUpdate) -> None:
        run_id, record = update.run.run_id, update.record
        if run_id not in self._book.runs:
            self._make_rows(_run_key(update))
        entry = self._entry(update)
        if entry is not None:
            self._write_entry(entry, lambda entry: self._book.note(entry.run_id, entry.mine))

        if record is None:
            self._begun.add(run_id)
        else:
            self._begun.discard(run_id)
            self._holes.discard(run_id)
            self._written.pop(run_id, None)
            self._book.note(run_id, self._book.runs[run_id], record.status)

    def _write_entry(self, entry: Entry, on_created: Callable[[Entry], None] = lambda entry: None) -> None:
        write_entry(self._client, self._id, entry, on_created)

    def _make_rows(self, key: RunKey) -> None:
        """Make the rows above a run where they are missing."""
        for row in self._rows.missing(key):
            self._write_entry(row, self._rows.created)

    def rows(self, rows: Iterable[Row]) -> None:
        """Write what the leaderboard says of methods, also of several labels of the same runs."""
        rows = list(rows)
        for row in rows:
            self._make_rows(RunKey.of(row.dataset, row.method, row.settings))
        for entry in self._rows.changed(rows):
            self._write_entry(entry)

    def models(self, rows: Iterable[Row]) -> list[str]:
        """Keep each row's best model in MLflow's own format, where it is missing; return why some were left out."""
        left_out = []
        for row in self._rows.without_model(rows):
            if row.best not in self._book.runs or not (self._home.run(row.best) / MODEL).is_file():
                continue  # kept nowhere, or on another machine
            labels = {"dataset": row.dataset, "method": row.method}
            try:
                uri = log_model(self._client, self._id, self._book.runs[row.best], self._home, row.best, labels)
            except UserError as error:
                left_out.append(f"{row_name(row.dataset, row.method)}: {error}")
            else:
                self._write_entry(self._rows.has_model(row, uri))

        return left_out

    def _entry(self, update: RunUpdate) -> Entry | None:
        run, record, detail = update.run, update.record, self._experiment.tracking.detail
        run_id, origin = run.run_id, {**self._about, _OWNER: self._parent}
        if update.trial:
            row = self._rows.above(_run_key(update))
            return None if run_id in self._book.runs else trial_entry(update, row, origin)

        entry = Entry(run_id, self._book.runs.get(run_id, ""))
        if not entry.mine:
            entry.tags = {**run_tags(run, "run"), **origin, _ABOVE: self._rows.above(_run_key(update))}
            entry.started = milliseconds("" if record is None else record.started)

        if run_id not in self._written:
            entry.params = run_params(run)  # writing the same values again does no harm
            self._written[run_id] = last = self._last_epoch(entry.mine)
            if entry.mine and update.epochs:
                first = update.epochs[0]
                if run.epochs_behind(first.phase, first.epoch) > last + 1:
                    self._holes.add(run_id)

        epochs = update.epochs if record is None else record.epochs  # `epoch_metrics` leaves out those already written
        if record is None and run_id in self._holes:
            epochs = []
        entry.metrics, self._written[run_id] = epoch_metrics(run, epochs, self._written[run_id], detail)

        if record is not None:
            entry.status, entry.ended = outcome(record), milliseconds(record.finished)
            entry.tags |= end_tags(record)
            entry.metrics += end_metrics(run, record, detail)
            entry.inputs = inputs_of(run, record)
            entry.files, entry.texts = files_of(update)

        return entry

    def _last_epoch(self, mine: str) -> int:
        """Return the last epoch that an earlier driver wrote of the run."""
        if not mine:
            return 0
        return max((metric.step for metric in self._client.get_metric_history(mine, "epoch_seconds")), default=0)

    def close(self, artefacts: list[Path], status: str) -> None:
        """Write the experiment's artefacts and status; runs that were started here and have not ended are KILLED."""
        end_time = milliseconds()
        runs = self._book.runs
        killed = [Entry(run_id, runs[run_id], status="KILLED", ended=end_time) for run_id in sorted(self._begun)]
        parent = Entry("", self._parent, status=status, ended=end_time, files=tuple(artefacts))
        for entry in (parent, *killed, *self._rows.ended(status)):
            self._write_entry(entry)
        self._begun.clear()
        self._book.save()


def _run_key(update: RunUpdate) -> RunKey:
    run = update.run
    return RunKey(run.dataset, run.method, None) if update.trial else RunKey.of(run.dataset, run.method, run.spec)
