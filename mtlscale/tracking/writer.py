"""Writing to MLflow, call by call: one parent run per experiment, one child per run."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from mtlscale.records import Epoch, Home, RunRecord, write_atomically
from mtlscale.spec import Experiment, Run, UserError

_METRICS_PER_BATCH = 1000  # MLflow's limit
_RUNS_PER_PAGE = 1000
_OURS = "tags.`mtlscale.run_id` != ''"
_FLUSH_SECONDS = 1.0  # a run's epochs are written at most this often


def check_uri(uri: str) -> None:
    """`UserError` within ten seconds where no MLflow server answers, or a scheme MLflow does not have."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        try:
            with urlopen(f"{uri.rstrip('/')}/health", timeout=8) as answer:
                answer.read()
        except HTTPError as error:
            if error.code in (401, 403):
                return  # it is there; credentials come from MLflow's own environment variables
            raise UserError(f"{uri} answers, but not as an MLflow server (HTTP {error.code})") from None
        except (URLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise UserError(f"no MLflow answers at {uri} ({reason}); start it or correct tracking.uri") from None
    elif parts.scheme in ("", "file"):
        raise UserError(f"tracking.uri {uri!r}: MLflow keeps no plain folders any more; write sqlite:///PATH.db")
    elif parts.scheme.split("+")[0] not in ("sqlite", "postgresql", "mysql", "mssql", "databricks"):
        raise UserError(
            f"tracking.uri {uri!r}: unknown scheme {parts.scheme!r}; use sqlite:///, http:// or postgresql://"
        )


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted parameters."""
    result = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result.update(_flat(value, f"{prefix}{key}."))
        elif value is not None:
            result[f"{prefix}{key}"] = str(value)[:6000]
    return result


class Writer:
    """Writes one experiment to MLflow, call by call; whatever MLflow raises passes through."""

    def __init__(self, experiment: Experiment, home: Home) -> None:
        self._experiment, self._home = experiment, home
        self._uri = experiment.tracking.uri or home.tracking_uri
        check_uri(self._uri)
        self._parent: str | None = None  # MLflow's id of the experiment's own run
        self._runs: dict[str, str] = {}  # our run_id -> MLflow's
        self._pending: dict[str, list[Epoch]] = {}
        self._flushed: dict[str, float] = {}
        self._written: dict[str, int] = {}  # our run_id -> last epoch written, of all phases

    def connect(self) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
        logging.getLogger("alembic").setLevel(logging.ERROR)
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        self._metric, self._param, self._tag = Metric, Param, RunTag
        if self._uri.startswith("sqlite:///"):
            Path(self._uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        self._client = MlflowClient(tracking_uri=self._uri)
        name = self._experiment.name
        found = self._client.get_experiment_by_name(name)
        if found is None:
            local = self._uri.startswith("sqlite:")
            location = (self._home.artifacts / name).as_uri() if local else None
            self._id = self._client.create_experiment(name, artifact_location=location)
        else:
            self._id = found.experiment_id
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
            self._client.log_text(self._parent, self._experiment.model_dump_json(indent=2), "experiment.json")
        else:
            self._client.update_run(self._parent, status="RUNNING")
            self._adopt()
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

    def start(self, run: Run) -> None:
        if run.run_id in self._runs:
            self._client.update_run(self._runs[run.run_id], status="RUNNING")
            self._log_params(run)  # the same again does no harm
            history = self._client.get_metric_history(self._runs[run.run_id], "epoch_seconds")
            self._written[run.run_id] = max((m.step for m in history), default=0)
            return
        tags = {
            "mlflow.runName": f"{run.dataset}/{run.method}/seed {run.seed}",
            "mlflow.parentRunId": str(self._parent),
            "mtlscale.kind": "run",
            "mtlscale.run_id": run.run_id,
            "mtlscale.dataset": run.dataset,
            "mtlscale.method": run.method,
            "mtlscale.fingerprint": run.fingerprint,
        }
        mine = self._client.create_run(self._id, tags=tags).info.run_id
        self._note(run.run_id, mine)  # at once: a driver may die any time
        self._log_params(run)
        self._written[run.run_id] = 0

    def _log_params(self, run: Run) -> None:
        params = [self._param(key, value) for key, value in _flat(run.spec).items()]
        self._client.log_batch(self._runs[run.run_id], params=params)

    def epoch(self, run: Run, epoch: Epoch) -> None:
        self._pending.setdefault(run.run_id, []).append(epoch)
        if time.monotonic() - self._flushed.get(run.run_id, 0.0) >= _FLUSH_SECONDS:
            self._flush(run)

    def _flush(self, run: Run) -> None:
        run_id = run.run_id
        now = int(time.time() * 1000)
        metrics = []
        last = self._written.get(run_id, 0)
        for epoch in self._pending.pop(run_id, []):
            step = run.epochs_behind(epoch.phase, epoch.epoch)
            if step <= last:
                continue  # an epoch repeated after a resume
            last = step
            values = {"epoch_seconds": epoch.seconds}
            values |= {f"train.loss.{task}": value for task, value in epoch.train_loss.items()}
            values |= {f"weight.{task}": value for task, value in epoch.weights.items()}
            values |= {
                f"val.{metric}.{task}": value for task, found in epoch.val.items() for metric, value in found.items()
            }
            values |= {f"trace.{name}": v for name, v in epoch.traces.items() if isinstance(v, int | float)}
            metrics += [self._metric(key, float(value), now, step) for key, value in values.items()]
        self._written[run_id] = last
        for start in range(0, len(metrics), _METRICS_PER_BATCH):
            self._client.log_batch(self._runs[run_id], metrics=metrics[start : start + _METRICS_PER_BATCH])
        self._flushed[run_id] = time.monotonic()

    def finish(self, run: Run, record: RunRecord, folder: Path) -> None:
        if run.run_id not in self._written:
            self.start(run)
        self._pending[run.run_id] = list(record.epochs)  # those written already are left out
        self._flush(run)
        last = 0 if not record.epochs else run.epochs_behind(record.epochs[-1].phase, record.epochs[-1].epoch)
        mine = self._runs[run.run_id]
        now = int(time.time() * 1000)
        values = {
            f"{split}.{metric}.{task}": value
            for split, tasks in record.metrics.items()
            if split != "val"
            for task, found in tasks.items()
            for metric, value in found.items()
        }
        for split, tasks in record.metrics.items():
            mains = [tasks[task][metric] for task, metric in record.main_metrics.items() if task in tasks]
            values[f"{split}.mean"] = sum(mains) / len(mains)
        values |= {
            "seconds": record.seconds,
            "samples_per_second": record.samples_per_second,
            "peak_memory_mb": record.peak_memory_mb,
            "parameters": record.parameters,
            **{f"counter.{name}": count for name, count in record.counters.items()},
        }
        if record.chosen_epoch is not None:
            values["chosen_epoch"] = record.chosen_epoch
        tags = {
            "mtlscale.status": record.status,
            "mtlscale.revision": record.revision,
            "mtlscale.hardware": record.hardware,
            **{f"version.{name}": version for name, version in record.versions.items()},
            **({"mtlscale.error": record.error} if record.error else {}),
        }
        self._client.log_batch(
            mine,
            metrics=[self._metric(key, float(value), now, last) for key, value in values.items()],
            tags=[self._tag(key, str(value)) for key, value in tags.items()],
        )
        for name in ("record.json", "model.pt", "pictures.png", "error.txt"):
            if (folder / name).exists():
                self._client.log_artifact(mine, str(folder / name))
        self._client.set_terminated(mine, status="FINISHED" if record.status == "finished" else "FAILED")

    def trial(self, run: Run, record: RunRecord, score: float | None) -> None:
        if run.run_id in self._runs:
            return
        tags = {
            "mlflow.runName": f"{run.dataset}/{run.method}/trial",
            "mlflow.parentRunId": str(self._parent),
            "mtlscale.kind": "trial",
            "mtlscale.run_id": run.run_id,
            "mtlscale.dataset": run.dataset,
            "mtlscale.method": run.method,
            "mtlscale.status": record.status,
            **({"mtlscale.error": record.error} if record.error else {}),
        }
        mine = self._client.create_run(self._id, tags=tags).info.run_id
        values = {"seconds": record.seconds, "epochs": len(record.epochs)}
        if score is not None:
            values["val.score"] = score
        now = int(time.time() * 1000)
        self._client.log_batch(
            mine,
            metrics=[self._metric(key, float(value), now, 0) for key, value in values.items()],
            params=[self._param(key, str(value)) for key, value in run.trial.items()],
        )
        self._client.set_terminated(mine, status="FINISHED" if record.status == "finished" else "FAILED")
        self._note(run.run_id, mine)

    def close(self, artefacts: list[Path], status: str) -> None:
        for path in artefacts:
            self._client.log_artifact(str(self._parent), str(path))
        self._client.set_terminated(str(self._parent), status=status)
        self._save_book()
