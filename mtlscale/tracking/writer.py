"""Log of an experiment to MLflow: a report run, rows of methods, and below them the runs.

What is there is asked of MLflow by tags: `mtlscale.home` marks the report run of a home, and all others have
`mtlscale.owner`, the id of that run, beside `mtlscale.row` or `mtlscale.run_id`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from mtlscale.config import Experiment, Run, UserError, without_secrets
from mtlscale.records import Epoch, Home, RunRecord
from mtlscale.tracking import page
from mtlscale.tracking.calls import create_run, log, set_status, sound_name, sound_value
from mtlscale.tracking.fields import (
    MODEL,
    RECORD,
    SETTINGS,
    about,
    end_tags,
    error_tags,
    files_of,
    inputs_of,
    milliseconds,
    outcome,
    row_name,
    run_params,
    run_tags,
    trial_params,
)
from mtlscale.tracking.mark import home_id, mark_written
from mtlscale.tracking.models import log_model
from mtlscale.tracking.reader import pages
from mtlscale.tracking.rows import Row, row_key, shared_params
from mtlscale.tracking.service import check_artifact_store, check_uri, client_of, relocate, uri_of
from mtlscale.tracking.values import end_metrics, epoch_metrics, epochs_of

_ABOVE, _MODEL_TAG, _NOTE = "mlflow.parentRunId", "mtlscale.model_run", "mlflow.note.content"
_SEARCH = "search"  # the row above all trials
_REPORTS = ("leaderboard.*", "pictures/*.png", "sweep*")


class Writer:
    """Writer of one experiment to MLflow; whatever MLflow raises passes through.

    Attributes:
        remark: What there is to say of the server, if anything.
        ended: Our run_id -> status of the runs and trials that MLflow has completely.
    """

    def __init__(self, experiment: Experiment, home: Home) -> None:
        self._experiment, self._home = experiment, home
        self.uri = uri_of(experiment, home)
        self.remark = check_uri(self.uri)
        self.ended: dict[str, str] = {}
        self._ids: dict[str, str] = {}  # our run_id -> MLflow's id
        self._rows: dict[str, str] = {}  # a row's key -> MLflow's id
        self._deleted_rows: dict[str, str] = {}
        self._steps: dict[str, set[int]] = {}  # run_id -> epochs in MLflow, of all phases, of runs that go on
        self._begun: set[str] = set()  # runs that are RUNNING in MLflow because of this driver

    def connect(self) -> None:
        """Open the experiment and this home's report run in it; make or restore what is missing."""
        self._client, self._about = client_of(self.uri), about()
        self._id = self._open(self._experiment.name)

        name_of_home = home_id(self._home)
        report_run = next(self._search(f"tags.`mtlscale.home` = '{name_of_home}'", deleted=True), None)
        if report_run is None:
            mark_written(self._experiment, self._home, {})  # MLflow may have lost its database
            tags = {
                "mlflow.runName": f"{self._experiment.name} · report",
                "mtlscale.kind": "experiment",
                "mtlscale.home": name_of_home,
                _NOTE: self._experiment.description,
                **self._about,
            }
            self._parent = create_run(self._client, self._id, tags, milliseconds())
        else:
            self._parent = report_run.info.run_id
            if report_run.info.lifecycle_stage == "deleted":
                self._client.restore_run(self._parent)
            set_status(self._client, self._parent, "RUNNING")

        self._origin = {**self._about, "mtlscale.owner": self._parent}
        self._client.log_text(self._parent, self._experiment.model_dump_json(indent=2), SETTINGS)

    def load(self) -> None:
        """Ask MLflow for this home's rows, runs and trials; remove trials in part, and runs that are there twice."""
        ended, ids, begun, leftovers = dict[str, str](), dict[str, str](), dict[str, str](), list[str]()
        self._rows, self._deleted_rows, self._steps = {}, {}, {}

        for run in self._search(self._owned, deleted=True):
            tags, mine, is_active = run.data.tags, run.info.run_id, run.info.lifecycle_stage == "active"
            if "mtlscale.row" in tags:
                (self._rows if is_active else self._deleted_rows)[tags["mtlscale.row"]] = mine
            elif not is_active:
                continue
            elif "mtlscale.status" in tags and run.info.status in ("FINISHED", "FAILED"):  # which is written last
                ended[tags["mtlscale.run_id"]], ids[tags["mtlscale.run_id"]] = tags["mtlscale.status"], mine
            elif tags["mtlscale.kind"] == "trial":
                leftovers.append(mine)
            else:
                leftovers += [begun[run_id]] if (run_id := tags["mtlscale.run_id"]) in begun else []
                begun[run_id] = mine

        self.ended, self._ids = ended, begun | ids
        leftovers += [mine for run_id, mine in begun.items() if run_id in ended]
        for mine in leftovers:  # not before: pages are counted from the first run
            self._client.delete_run(mine)

    def write(self, run: Run, epochs: Sequence[Epoch] = (), record: RunRecord | None = None) -> None:
        """Write the beginning of a run, its next epochs, or its end; make it anew if somebody deleted it in MLflow."""
        from mlflow.exceptions import MlflowException

        try:
            self._write(run, epochs, record)
        except MlflowException:
            mine = self._ids.get(run.run_id)
            if mine is None or self._is_active(mine):
                raise
            del self._ids[run.run_id]
            self._steps.pop(run.run_id, None)
            self._write(run, epochs, record)

    def _write(self, run: Run, epochs: Sequence[Epoch], record: RunRecord | None) -> None:
        run_id, folder, detail = run.run_id, self._home.run(run.run_id), self._experiment.tracking.detail
        params = {} if run_id in self._steps else run_params(run)  # the same values again do no harm
        if run_id not in self._ids:
            row = self._row_of(run.dataset, run.method, run.spec)
            tags = {**run_tags(run, "run"), **self._origin, _ABOVE: row}
            started = milliseconds("" if record is None else record.started)
            self._ids[run_id] = create_run(self._client, self._id, tags, started)
            self._steps[run_id] = set()
        elif run_id not in self._steps:  # an earlier driver wrote of it
            if record is None:
                set_status(self._client, self._ids[run_id], "RUNNING")
            history = self._client.get_metric_history(self._ids[run_id], "epoch_seconds")
            self._steps[run_id] = {metric.step for metric in history}

        mine, steps = self._ids[run_id], self._steps[run_id]
        metrics, new_steps = epoch_metrics(run, epochs if record is None else epochs_of(folder, record), steps, detail)
        if record is None:
            self.ended.pop(run_id, None)
            self._begun.add(run_id)
            log(self._client, mine, metrics, params)
            steps.update(new_steps)
            return

        files = files_of(folder)  # while the run is small: MLflow reads all of it for this
        for file in files:
            self._client.log_artifact(mine, str(file))
        if RECORD not in (file.name for file in files):
            self._client.log_text(mine, record.model_dump_json(), RECORD)

        metrics += end_metrics(record, max(steps.union(new_steps), default=0), detail)
        log(self._client, mine, metrics, params, end_tags(record))
        self._client.log_inputs(mine, inputs_of(run, record))
        set_status(self._client, mine, outcome(record), milliseconds(record.finished))
        self._has_ended(run_id, record)

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        """Write a trial of a search that has ended: its settings and its score, without its epochs."""
        run_id = run.run_id
        if self.ended.get(run_id) == record.status:
            return
        if run_id in self._ids:  # it failed and was tried again
            self._client.delete_run(self._ids.pop(run_id))

        tags = {**run_tags(run, "trial"), **self._origin, _ABOVE: self._row_of(run.dataset, run.method)}
        mine = create_run(self._client, self._id, tags, milliseconds(record.started))
        epochs = epochs_of(self._home.run(run_id), record)
        values = {"seconds": record.seconds, "epochs": len(epochs), "val.score": score}
        metrics = [(key, float(value), 0) for key, value in values.items() if value is not None]
        log(self._client, mine, metrics, trial_params(run), {"mtlscale.status": record.status, **error_tags(record)})
        set_status(self._client, mine, outcome(record), milliseconds(record.finished))
        self._ids[run_id] = mine
        self._has_ended(run_id, record)

    def _has_ended(self, run_id: str, record: RunRecord) -> None:
        self.ended[run_id] = record.status
        self._begun.discard(run_id)
        self._steps.pop(run_id, None)

    def _row_of(self, dataset: str, method: str, spec: Mapping[str, Any] | None = None) -> str:
        """Return MLflow's id of the row above a method's runs, of its trials without a spec; make what is missing."""
        name = row_name(dataset, method)
        tags = {"mlflow.runName": name, "mtlscale.dataset": dataset, "mtlscale.method": method}
        labels = {"dataset": dataset, "method": method, "label": name}
        if spec is not None:
            params = shared_params(spec)
            return self._row(row_key(dataset, method, params), {**tags, "mtlscale.kind": "row"}, {**params, **labels})

        above = self._row(_SEARCH, {"mlflow.runName": _SEARCH, "mtlscale.kind": "search"}, {})
        key = json.dumps([_SEARCH, dataset, method], ensure_ascii=False)
        return self._row(key, {**tags, "mtlscale.kind": "search", _ABOVE: above}, labels)

    def _row(self, key: str, tags: Mapping[str, str], params: Mapping[str, str]) -> str:
        if key in self._deleted_rows:
            self._rows[key] = self._deleted_rows.pop(key)
            self._client.restore_run(self._rows[key])
        if key not in self._rows:
            self._rows[key] = create_run(
                self._client, self._id, {**tags, **self._origin, "mtlscale.row": key}, milliseconds()
            )
            log(self._client, self._rows[key], params=params)
        return self._rows[key]

    def rows(self, rows: Iterable[Row]) -> None:
        """Write what MLflow lacks of the leaderboard, also of several labels of the same runs."""
        row_of = {self._row_of(row.dataset, row.method, row.settings): row for row in rows}
        for stored in self._search(f"{self._owned} and tags.`mtlscale.kind` = 'row'") if row_of else ():
            mine, row = stored.info.run_id, row_of.get(stored.info.run_id)
            if row is None:
                continue
            values = {**row.metrics, "seeds_finished": row.finished, "seeds_failed": row.failed}
            step, last = row.finished + row.failed, stored.data.metrics
            news = {key: float(value) for key, value in values.items() if last.get(sound_name(key)) != value}
            log(self._client, mine, [(key, value, step) for key, value in news.items()])
            if stored.info.status != row.status:
                set_status(self._client, mine, row.status)

    def models(self, rows: Iterable[Row]) -> list[str]:
        """Keep each row's best model in MLflow's own format, where it is missing; return why some were left out."""
        # Others are kept nowhere, or on another machine.
        candidates = [row for row in rows if row.best in self._ids and (self._home.run(row.best) / MODEL).is_file()]
        stored = self._search(f"{self._owned} and tags.`mtlscale.kind` = 'row'") if candidates else ()
        models = {run.info.run_id: run.data.tags.get(_MODEL_TAG) for run in stored}

        left_out = []
        for row in candidates:
            mine = self._row_of(row.dataset, row.method, row.settings)
            if models.get(mine) == row.best:
                continue
            labels = {"dataset": row.dataset, "method": row.method}
            try:
                uri = log_model(self._client, self._id, self._ids[row.best], self._home, row.best, labels)
            except UserError as error:
                left_out.append(f"{row_name(row.dataset, row.method)}: {error}")
            else:
                log(self._client, mine, tags={"mtlscale.model": uri, _MODEL_TAG: row.best})

        return left_out

    def close(self, status: str) -> None:
        """Write the experiment's reports and status; runs that were started here and have not ended are KILLED."""
        folder = self._home.experiment(self._experiment.name)
        reports = chain.from_iterable(map(folder.glob, _REPORTS)) if status == "FINISHED" else ()
        for report in sorted(reports):
            self._client.log_artifact(self._parent, str(report))
        set_status(self._client, self._parent, status)

        for run_id in sorted(self._begun):
            set_status(self._client, self._ids[run_id], "KILLED")
        self._begun.clear()
        # A search ends as the experiment did, and so do rows whose seeds are not complete.
        condition = f"{self._owned} and tags.`mtlscale.row` != '' and attributes.status = 'RUNNING'"
        for row in list(self._search(condition)):
            set_status(self._client, row.info.run_id, status)

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

    @property
    def _owned(self) -> str:
        """The condition on all runs of this home."""
        return f"tags.`mtlscale.owner` = '{self._parent}'"

    def _search(self, condition: str, *, deleted: bool = False) -> Iterator[Any]:
        return pages(self._client, [self._id], condition, deleted=deleted)

    def _is_active(self, mine: str) -> bool:
        """Return whether MLflow has a run, and nobody deleted it."""
        from mlflow.exceptions import MlflowException

        try:
            return bool(self._client.get_run(mine).info.lifecycle_stage == "active")
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
