"""Two ways into MLflow: its client, call by call, and its own tables, many runs in one transaction.

The client takes some twelve transactions for a run, and an object for each of its values. Where the tracking URI is a
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


class Lane(Protocol):
    """Writes entries; `made` is called for each run that was new, with MLflow's id in the entry."""

    together: int  # entries that are best written at once

    def write(self, entries: Sequence[Entry], made: Callable[[Entry], None]) -> None: ...


def lane_of(client: Any, experiment_id: str) -> Lane:
    """The quickest way there is for this client's URI."""
    try:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
    except ImportError:  # mlflow-skinny has no database
        return ClientLane(client, experiment_id)
    store = client._tracking_client.store
    return (
        DatabaseLane(store, experiment_id) if isinstance(store, SqlAlchemyStore) else ClientLane(client, experiment_id)
    )


class ClientLane:
    """By MLflow's client; a run's status is written last, so a run that is FINISHED is there whole."""

    together = 1

    def __init__(self, client: Any, experiment_id: str) -> None:
        from mlflow.entities import Metric, Param, RunTag

        self._client, self._id = client, experiment_id
        self._metric, self._param, self._tag = Metric, Param, RunTag

    def write(self, entries: Sequence[Entry], made: Callable[[Entry], None]) -> None:
        for entry in entries:
            self._write(entry, made)

    def _write(self, entry: Entry, made: Callable[[Entry], None]) -> None:
        client, tags = self._client, entry.tags
        if not entry.mine:
            entry.mine = client.create_run(self._id, start_time=entry.started, tags=tags).info.run_id
            made(entry)
            tags = {}
        elif entry.ended is None and entry.status == "RUNNING" and entry.params:
            client.update_run(entry.mine, status="RUNNING")  # begun before, and now taken up again
        for file in entry.files:  # while the run is small: MLflow reads it whole for this
            client.log_artifact(entry.mine, str(file))
        for name, text in entry.texts.items():
            client.log_text(entry.mine, text, name)
        now = int(time.time() * 1000)
        metrics = [self._metric(key, value, now, step) for key, value, step in entry.metrics]
        first, rest = metrics[:_METRICS_PER_CALL], metrics[_METRICS_PER_CALL:]
        client.log_batch(
            entry.mine,
            metrics=first,
            params=[self._param(key, value) for key, value in entry.params.items()],
            tags=[self._tag(key, value) for key, value in tags.items()],
        )
        for start in range(0, len(rest), _METRICS_PER_CALL):
            client.log_batch(entry.mine, metrics=rest[start : start + _METRICS_PER_CALL])
        if entry.inputs:
            client.log_inputs(entry.mine, datasets=[self._input(one) for one in entry.inputs])
        if entry.ended is not None:
            client.set_terminated(entry.mine, entry.status, entry.ended)

    def _input(self, one: Input) -> Any:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(one.name, one.digest, "code", one.source)
        return DatasetInput(dataset, [InputTag("mlflow.data.context", one.context)])


class DatabaseLane:
    """By MLflow's models of its own tables: all entries whole, in one transaction, or none of them."""

    together = 32

    def __init__(self, store: Any, experiment_id: str) -> None:
        from mlflow.store.tracking.dbmodels import models

        self._store, self._id, self._models = store, experiment_id, models
        self._artifacts = store.get_experiment(experiment_id).artifact_location
        self._known: dict[Input, str] = {}  # MLflow's ids of data sets

    def write(self, entries: Sequence[Entry], made: Callable[[Entry], None]) -> None:
        new = [entry for entry in entries if not entry.mine]
        ids = {id(entry): entry.mine or uuid.uuid4().hex for entry in entries}
        known = [entry for entry in entries if entry.mine]
        self._log_files(entries, ids, known)
        datasets = self._datasets({one for entry in entries for one in entry.inputs})
        now = int(time.time() * 1000)
        with self._store.ManagedSessionMaker(read_only=False) as session:
            table = _Rows(session, self._models, {entry.mine for entry in known})
            table.insert("SqlRun", [self._run(entry, ids[id(entry)]) for entry in new])
            table.update_runs(known)
            for name, kind in (("SqlTag", "tags"), ("SqlParam", "params")):
                table.put(name, [(ids[id(e)], key, value) for e in entries for key, value in getattr(e, kind).items()])
            table.put_inputs([(ids[id(e)], datasets[one], one.context) for e in entries for one in e.inputs])
            table.put_metrics({ids[id(entry)]: self._metrics(entry, now) for entry in entries if entry.metrics})
        for entry in new:
            entry.mine = ids[id(entry)]
            made(entry)

    def _datasets(self, inputs: set[Input]) -> dict[Input, str]:
        """MLflow's ids of these data sets; in a transaction of their own, since others may write the same ones."""
        from sqlalchemy.exc import IntegrityError

        model = self._models.SqlDataset
        for _ in range(2):
            missing = sorted({(one.name, one.digest): one for one in inputs - set(self._known)}.values())
            if not missing:
                break
            with contextlib.suppress(IntegrityError), self._store.ManagedSessionMaker(read_only=False) as session:
                query = session.query(model.name, model.digest, model.dataset_uuid)
                there = {
                    (name, digest): uid for name, digest, uid in query.filter(model.experiment_id == int(self._id))
                }
                rows = [self._dataset(one) for one in missing if (one.name, one.digest) not in there]
                _Rows(session, self._models, set()).insert("SqlDataset", rows)
                there |= {(row["name"], row["digest"]): row["dataset_uuid"] for row in rows}
            self._known |= {one: there[one.name, one.digest] for one in inputs if (one.name, one.digest) in there}
        return self._known

    def _dataset(self, one: Input) -> dict[str, Any]:
        return {
            "dataset_uuid": uuid.uuid4().hex,
            "experiment_id": int(self._id),
            "name": one.name,
            "digest": one.digest,
            "dataset_source_type": "code",
            "dataset_source": one.source,
            "dataset_schema": None,
            "dataset_profile": None,
        }

    def _location(self, mine: str) -> str:
        from mlflow.utils.uri import append_to_uri_path

        return str(append_to_uri_path(self._artifacts, mine, self._store.ARTIFACTS_FOLDER_NAME))

    def _log_files(self, entries: Iterable[Entry], ids: dict[int, str], known: Sequence[Entry]) -> None:
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with_files = [entry for entry in entries if entry.files or entry.texts]
        there = [entry.mine for entry in known if entry.files or entry.texts]
        places: dict[str, str] = {}
        if there:
            run = self._models.SqlRun
            with self._store.ManagedSessionMaker() as session:
                places = dict(session.query(run.run_uuid, run.artifact_uri).filter(run.run_uuid.in_(there)).all())
        for entry in with_files:
            mine = ids[id(entry)]
            repository = get_artifact_repository(places.get(mine) or self._location(mine))
            for file in entry.files:
                repository.log_artifact(str(file))
            for name, text in entry.texts.items():
                with tempfile.TemporaryDirectory() as folder:
                    Path(folder, name).write_text(text, encoding="utf-8")
                    repository.log_artifact(str(Path(folder, name)))

    def _run(self, entry: Entry, mine: str) -> dict[str, Any]:
        """As the store's own `create_run` fills it."""
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
        """Rows, each once, as MLflow cleans them: it stores a NaN as 0 with a mark, infinity as the largest number."""
        rows = {}
        for key, value, step in entry.metrics:
            is_nan, clean = self._store.sanitize_metric_value(value)
            rows[key, clean, step, is_nan] = {
                "key": key, "value": clean, "timestamp": now, "step": step, "is_nan": is_nan,
            }  # fmt: skip
        return list(rows.values())


class _Rows:
    """The rows of one transaction. `known`: runs that were there before, whose rows may have to be changed."""

    def __init__(self, session: Any, models: Any, known: set[str]) -> None:
        self._session, self._models, self._known = session, models, known

    def insert(self, name: str, rows: list[dict[str, Any]]) -> None:
        from sqlalchemy import insert

        if rows:
            self._session.execute(insert(getattr(self._models, name)), rows)

    def _update(self, name: str, rows: list[dict[str, Any]]) -> None:
        """By primary key."""
        from sqlalchemy import update

        if rows:
            self._session.execute(update(getattr(self._models, name)), rows)

    def update_runs(self, entries: Iterable[Entry]) -> None:
        self._update("SqlRun", [{"run_uuid": e.mine, "status": e.status, "end_time": e.ended} for e in entries])

    def put(self, name: str, values: list[tuple[str, str, str]]) -> None:
        """Tags or parameters (run, key, value): a tag that is there changes, a parameter stays as it is."""
        model = getattr(self._models, name)
        concerned = {run for run, _, _ in values} & self._known
        there: set[tuple[str, str]] = set()
        if concerned:
            query = self._session.query(model.run_uuid, model.key).filter(model.run_uuid.in_(concerned))
            there = {(run, key) for run, key in query}
        rows = [{"run_uuid": run, "key": key, "value": value} for run, key, value in values]
        self.insert(name, [row for row in rows if (row["run_uuid"], row["key"]) not in there])
        if name == "SqlTag":
            self._update(name, [row for row in rows if (row["run_uuid"], row["key"]) in there])

    def put_inputs(self, inputs: list[tuple[str, str, str]]) -> None:
        """(run, MLflow's id of a data set, what for), each once."""
        model, there = self._models.SqlInput, set[tuple[str, str]]()
        if concerned := {run for run, _, _ in inputs} & self._known:
            query = self._session.query(model.destination_id, model.source_id)
            there = {(run, of) for run, of in query.filter(model.destination_id.in_(concerned))}
        rows, tags = [], []
        for run, of, context in inputs:
            if (run, of) not in there:
                own = uuid.uuid4().hex
                ends = {"source_type": "DATASET", "source_id": of, "destination_type": "RUN", "destination_id": run}
                rows.append({"input_uuid": own, **ends})
                tags.append({"input_uuid": own, "name": "mlflow.data.context", "value": context})
        self.insert("SqlInput", rows)
        self.insert("SqlInputTag", tags)

    def put_metrics(self, metrics: dict[str, list[dict[str, Any]]]) -> None:
        """Every value, and of each run and key the latest one, which MLflow's tables of runs show."""
        model = self._models.SqlLatestMetric
        there: dict[tuple[str, str], tuple[int, int, float]] = {}
        if concerned := set(metrics) & self._known:
            columns = (model.run_uuid, model.key, model.step, model.timestamp, model.value)
            query = self._session.query(*columns).filter(model.run_uuid.in_(concerned))
            there = {(run, key): (step, stamp, value) for run, key, step, stamp, value in query}
        rows, latest = [], dict[tuple[str, str], dict[str, Any]]()
        for mine, values in metrics.items():
            for value in values:
                row = {"run_uuid": mine, **value}
                rows.append(row)
                best = latest.get((mine, row["key"]))
                if best is None or _order(row) > _order(best):
                    latest[mine, row["key"]] = row
        self.insert("SqlMetric", rows)
        self.insert("SqlLatestMetric", [row for place, row in latest.items() if place not in there])
        newer = [row for place, row in latest.items() if place in there and _order(row) > there[place]]
        self._update("SqlLatestMetric", newer)


def _order(row: dict[str, Any]) -> tuple[int, int, float]:
    return row["step"], row["timestamp"], row["value"]
