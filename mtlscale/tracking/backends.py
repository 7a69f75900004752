"""Two backends for MLflow: its client, call by call, and its own tables, many runs in one transaction.

The client takes some twelve transactions for a run, and an object for each of its values. If the tracking URI is a
database, MLflow's own models of its tables take the same rows in bulk, at a sixth of the cost. Both write the same.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from mtlscale.tracking.entries import Entry, Input

_METRICS_PER_CALL = 800  # MLflow takes 1,000 values in a call, parameters and tags among them


class Backend(Protocol):
    """Writer of entries; `made` is called for each new run, with MLflow's id in the entry."""

    batch_size: int  # number of entries that are best written at once

    def write(self, entries: Sequence[Entry], on_created: Callable[[Entry], None]) -> None: ...


def lane_of(client: Any, experiment_id: str) -> Backend:
    """Return the fastest backend for this client's URI."""
    try:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    except ImportError:  # mlflow-skinny has no database
        return ClientBackend(client, experiment_id)
    store = client._tracking_client.store
    return (
        DatabaseBackend(store, experiment_id)
        if isinstance(store, SqlAlchemyStore)
        else ClientBackend(client, experiment_id)
    )


class ClientBackend:
    """Backend of MLflow's client; it writes a run's status last, so a FINISHED run is complete."""

    batch_size = 1

    def __init__(self, client: Any, experiment_id: str) -> None:
        from mlflow.entities import Metric, Param, RunTag

        self._client, self._id = client, experiment_id
        self._metric, self._param, self._tag = Metric, Param, RunTag

    def write(self, entries: Sequence[Entry], on_created: Callable[[Entry], None]) -> None:
        for entry in entries:
            self._write(entry, on_created)

    def _write(self, entry: Entry, on_created: Callable[[Entry], None]) -> None:
        client, tags = self._client, entry.tags
        if not entry.mine:
            entry.mine = client.create_run(self._id, start_time=entry.started, tags=tags).info.run_id
            on_created(entry)
            tags = {}
        elif entry.ended is None and entry.status == "RUNNING" and entry.params:
            client.update_run(entry.mine, status="RUNNING")  # started earlier and now resumed

        for file in entry.files:  # while the run is small: MLflow reads all of it for this
            client.log_artifact(entry.mine, str(file))
        for name, text in entry.texts.items():
            client.log_text(entry.mine, text, name)

        timestamp = int(time.time() * 1000)
        metrics = [self._metric(key, value, timestamp, step) for key, value, step in entry.metrics]
        first_batch, further = metrics[:_METRICS_PER_CALL], metrics[_METRICS_PER_CALL:]
        client.log_batch(
            entry.mine,
            metrics=first_batch,
            params=[self._param(key, value) for key, value in entry.params.items()],
            tags=[self._tag(key, value) for key, value in tags.items()],
        )
        for start in range(0, len(further), _METRICS_PER_CALL):
            client.log_batch(entry.mine, metrics=further[start : start + _METRICS_PER_CALL])

        if entry.inputs:
            client.log_inputs(entry.mine, datasets=[self._input(data) for data in entry.inputs])
        if entry.ended is not None:
            client.set_terminated(entry.mine, entry.status, entry.ended)

    def _input(self, dataset_input: Input) -> Any:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(dataset_input.name, dataset_input.digest, "code", dataset_input.source)
        return DatasetInput(dataset, [InputTag("mlflow.data.context", dataset_input.context)])


class DatabaseBackend:
    """Backend of MLflow's models of its own tables: it writes all entries in one transaction, or none."""

    batch_size = 32

    def __init__(self, store: Any, experiment_id: str) -> None:
        from mlflow.store.tracking.dbmodels import models

        self._store, self._id, self._models = store, experiment_id, models
        self._artifacts = store.get_experiment(experiment_id).artifact_location
        self._known_runs: dict[Input, str] = {}  # MLflow's ids of data sets

    def write(self, entries: Sequence[Entry], on_created: Callable[[Entry], None]) -> None:
        new_entries = [entry for entry in entries if not entry.mine]
        ids = {id(entry): entry.mine or uuid.uuid4().hex for entry in entries}
        existing = [entry for entry in entries if entry.mine]
        self._log_files(entries, ids, existing)

        datasets = self._datasets({data for entry in entries for data in entry.inputs})
        timestamp = int(time.time() * 1000)
        with self._store.ManagedSessionMaker(read_only=False) as session:
            table = _Transaction(session, self._models, {entry.mine for entry in existing})
            table.insert("SqlRun", [self._run(entry, ids[id(entry)]) for entry in new_entries])
            table.update_runs(existing)
            for name, kind in (("SqlTag", "tags"), ("SqlParam", "params")):
                table.put(name, [(ids[id(e)], key, value) for e in entries for key, value in getattr(e, kind).items()])
            table.put_inputs([(ids[id(e)], datasets[data], data.context) for e in entries for data in e.inputs])
            table.put_metrics({ids[id(entry)]: self._metrics(entry, timestamp) for entry in entries if entry.metrics})

        for entry in new_entries:
            entry.mine = ids[id(entry)]
            on_created(entry)

    def _datasets(self, inputs: set[Input]) -> dict[Input, str]:
        """Return MLflow's ids of these data sets.

        They are written in a transaction of their own, since other processes may write the same ones.
        """
        from sqlalchemy.exc import IntegrityError

        model = self._models.SqlDataset
        for _ in range(2):
            missing = sorted({(data.name, data.digest): data for data in inputs - set(self._known_runs)}.values())
            if not missing:
                break
            with contextlib.suppress(IntegrityError), self._store.ManagedSessionMaker(read_only=False) as session:
                query = session.query(model.name, model.digest, model.dataset_uuid)
                stored = {
                    (name, digest): uid for name, digest, uid in query.filter(model.experiment_id == int(self._id))
                }
                rows = [self._dataset(data) for data in missing if (data.name, data.digest) not in stored]
                _Transaction(session, self._models, set()).insert("SqlDataset", rows)
                stored |= {(row["name"], row["digest"]): row["dataset_uuid"] for row in rows}
            self._known_runs |= {
                data: stored[data.name, data.digest] for data in inputs if (data.name, data.digest) in stored
            }

        return self._known_runs

    def _dataset(self, dataset_input: Input) -> dict[str, Any]:
        return {
            "dataset_uuid": uuid.uuid4().hex,
            "experiment_id": int(self._id),
            "name": dataset_input.name,
            "digest": dataset_input.digest,
            "dataset_source_type": "code",
            "dataset_source": dataset_input.source,
            "dataset_schema": None,
            "dataset_profile": None,
        }

    def _location(self, mine: str) -> str:
        from mlflow.utils.uri import append_to_uri_path

        return str(append_to_uri_path(self._artifacts, mine, self._store.ARTIFACTS_FOLDER_NAME))

    def _log_files(self, entries: Iterable[Entry], ids: dict[int, str], existing: Sequence[Entry]) -> None:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with_files = [entry for entry in entries if entry.files or entry.texts]
        existing_ids = [entry.mine for entry in existing if entry.files or entry.texts]
        locations: dict[str, str] = {}
        if existing_ids:
            run = self._models.SqlRun
            with self._store.ManagedSessionMaker() as session:
                locations = dict(
                    session.query(run.run_uuid, run.artifact_uri).filter(run.run_uuid.in_(existing_ids)).all()
                )

        for entry in with_files:
            mlflow_id = ids[id(entry)]
            repository = get_artifact_repository(locations.get(mlflow_id) or self._location(mlflow_id))
            for file in entry.files:
                repository.log_artifact(str(file))
            for name, text in entry.texts.items():
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder, name).write_text(text, encoding="utf-8")
                    repository.log_artifact(str(Path(folder, name)))

    def _run(self, entry: Entry, mine: str) -> dict[str, Any]:
        """Return the row of a run, filled as the store's own `create_run` fills it."""
        return {
            "run_uuid": mine,
            "name": entry.tags["mlflow.runName"],
            "artifact_uri": self._location(mine),
            "experiment_id": int(self._id),
            "source_type": "UNKNOWN",
            "source_name": "",
            "entry_point_name": "",
            "user_id": entry.tags.get("mlflow.user", "unknown"),
            "status": entry.status,
            "start_time": entry.started,
            "end_time": entry.ended,
            "deleted_time": None,
            "source_version": "",
            "lifecycle_stage": "active",
        }

    def _metrics(self, entry: Entry, now: int) -> list[dict[str, Any]]:
        """Return the rows of metrics, each once, cleaned as MLflow does.

        A NaN is stored as 0 with a mark, infinity as the largest number.
        """
        rows = {}
        for key, value, step in entry.metrics:
            is_nan, clean = self._store.sanitize_metric_value(value)
            rows[key, clean, step, is_nan] = {
                "key": key, "value": clean, "timestamp": now, "step": step, "is_nan": is_nan,
            }  # fmt: skip
        return list(rows.values())


class _Transaction:
    """Rows of one transaction; `known` holds the existing runs, whose rows may have to be changed."""

    def __init__(self, session: Any, models: Any, existing_runs: set[str]) -> None:
        self._session, self._models, self._existing_runs = session, models, existing_runs

    def insert(self, name: str, rows: list[dict[str, Any]]) -> None:
        from sqlalchemy import insert

        if rows:
            self._session.execute(insert(getattr(self._models, name)), rows)

    def _update(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Update rows by primary key."""
        from sqlalchemy import update

        if rows:
            self._session.execute(update(getattr(self._models, name)), rows)

    def update_runs(self, entries: Iterable[Entry]) -> None:
        self._update("SqlRun", [{"run_uuid": e.mine, "status": e.status, "end_time": e.ended} for e in entries])

    def put(self, name: str, values: list[tuple[str, str, str]]) -> None:
        """Write tags or parameters (run, key, value): an existing tag changes, an existing parameter stays."""
        model = getattr(self._models, name)
        existing_runs = {run for run, _, _ in values} & self._existing_runs
        existing_keys: set[tuple[str, str]] = set()
        if existing_runs:
            query = self._session.query(model.run_uuid, model.key).filter(model.run_uuid.in_(existing_runs))
            existing_keys = {(run, key) for run, key in query}

        rows = [{"run_uuid": run, "key": key, "value": value} for run, key, value in values]
        self.insert(name, [row for row in rows if (row["run_uuid"], row["key"]) not in existing_keys])
        if name == "SqlTag":
            self._update(name, [row for row in rows if (row["run_uuid"], row["key"]) in existing_keys])

    def put_inputs(self, inputs: list[tuple[str, str, str]]) -> None:
        """Write inputs (run, MLflow's id of a data set, context), each once."""
        model, stored = self._models.SqlInput, set[tuple[str, str]]()
        if existing_runs := {run for run, _, _ in inputs} & self._existing_runs:
            query = self._session.query(model.destination_id, model.source_id)
            stored = {(run, dataset_id) for run, dataset_id in query.filter(model.destination_id.in_(existing_runs))}

        rows, tags = [], []
        for run, dataset_id, context in inputs:
            if (run, dataset_id) not in stored:
                input_id = uuid.uuid4().hex
                ends = {
                    "source_type": "DATASET",
                    "source_id": dataset_id,
                    "destination_type": "RUN",
                    "destination_id": run,
                }
                rows.append({"input_uuid": input_id, **ends})
                tags.append({"input_uuid": input_id, "name": "mlflow.data.context", "value": context})

        self.insert("SqlInput", rows)
        self.insert("SqlInputTag", tags)

    def put_metrics(self, metrics: dict[str, list[dict[str, Any]]]) -> None:
        """Write every value, and per run and key the latest one, which MLflow's tables of runs show."""
        model = self._models.SqlLatestMetric
        stored: dict[tuple[str, str], tuple[int, int, float]] = {}
        if existing_runs := set(metrics) & self._existing_runs:
            columns = (model.run_uuid, model.key, model.step, model.timestamp, model.value)
            query = self._session.query(*columns).filter(model.run_uuid.in_(existing_runs))
            stored = {(run, key): (step, stamp, value) for run, key, step, stamp, value in query}

        rows, latest = [], dict[tuple[str, str], dict[str, Any]]()
        for mlflow_id, values in metrics.items():
            for value in values:
                row = {"run_uuid": mlflow_id, **value}
                rows.append(row)
                newest = latest.get((mlflow_id, row["key"]))
                if newest is None or _metric_order(row) > _metric_order(newest):
                    latest[mlflow_id, row["key"]] = row

        self.insert("SqlMetric", rows)
        self.insert("SqlLatestMetric", [row for run_and_key, row in latest.items() if run_and_key not in stored])
        newer = [
            row
            for run_and_key, row in latest.items()
            if run_and_key in stored and _metric_order(row) > stored[run_and_key]
        ]
        self._update("SqlLatestMetric", newer)


def _metric_order(row: dict[str, Any]) -> tuple[int, int, float]:
    return row["step"], row["timestamp"], row["value"]
