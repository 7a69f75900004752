"""Parameters, metrics and tags of a run for MLflow, made from our records; nothing here talks to MLflow."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from mtlscale.config import Run
from mtlscale.records import Epoch, PhaseCost, RunRecord
from mtlscale.tracking.values import Metric

_DIGEST = 36  # characters of a data set's digest
_LONGEST = 5000  # characters of a value; MLflow's limits are a little above
RECORD, SETTINGS = "record.json", "experiment.json"  # files of a run, and of the experiment's own MLflow run
MODEL = "model.pt"
_FILES = (RECORD, MODEL, "pictures.png", "predictions.html", "episodes.png", "error.txt")


@dataclass
class RunUpdate:
    """Update of a run that is not in MLflow yet.

    `folder` is where a run that has ended left its files.
    """

    run: Run
    epochs: list[Epoch] = field(default_factory=list)
    record: RunRecord | None = None
    folder: Path | None = None
    trial: bool = False
    score: float | None = None  # of a trial


class Input(NamedTuple):
    """Split of prepared data that a run has read."""

    name: str
    digest: str
    source: str  # JSON
    context: str


@dataclass
class Entry:
    """Content that is written to one MLflow run at once; times are in milliseconds."""

    run_id: str  # ours
    mine: str = ""  # MLflow's; "" if MLflow does not have the run yet
    status: str = "RUNNING"
    started: int = 0
    ended: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    inputs: tuple[Input, ...] = ()
    files: tuple[Path, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)  # file name -> content, for files that are in no folder


def milliseconds(moment: str = "") -> int:
    """Convert an ISO 8601 time; an empty or invalid one stands for now."""
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1000)
    except ValueError:
        return int(time.time() * 1000)


def outcome(record: RunRecord) -> str:
    """Return MLflow's status of a run that has ended."""
    return "FINISHED" if record.status == "finished" else "FAILED"


def row_name(dataset: str, method: str) -> str:
    """Return the name of a row, which is also the label that its seeds share."""
    return f"{method} · {dataset}"


def run_tags(run: Run, kind: str) -> dict[str, str]:
    """Return the tags of a run or trial, except those about the rows above it and its origin."""
    return {
        "mlflow.runName": f"{run.method} · {_knobs_in_short(run.trial) if kind == 'trial' else f'seed {run.seed}'}",
        "mtlscale.kind": kind,
        "mtlscale.run_id": run.run_id,
        "mtlscale.dataset": run.dataset,
        "mtlscale.method": run.method,
        **({} if kind == "trial" else {"mtlscale.fingerprint": run.fingerprint, **_plugins(run.spec)}),
    }


def _knobs_in_short(trial: Mapping[str, Any]) -> str:
    """Return the settings of a trial, by the last part of their names."""
    settings = ", ".join(f"{knob.rpartition('.')[2]} {_short(value)}" for knob, value in trial.items())
    return settings[:80] or "trial"


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _plugins(spec: Mapping[str, Any]) -> dict[str, str]:
    parts = {
        part: settings["plugin"]
        for part, settings in spec.items()
        if isinstance(settings, dict) and "plugin" in settings
    }
    chosen = spec.get("dataset", {}).get("task_metrics")
    metrics = {f"metric.{name}": digest for name, digest in chosen[1].items()} if chosen else {}
    return {f"mtlscale.plugin.{name}": digest for name, digest in {**parts, **metrics}.items()}


def run_params(run: Run) -> dict[str, str]:
    """Return all settings by their dotted names, and the labels, by which runs are searched for, by plain ones."""
    plain = {"dataset": run.dataset, "method": run.method, "label": row_name(run.dataset, run.method)}
    return {**knobs_of(run.spec), **plain}


def knobs_of(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a spec by their dotted names."""
    return _flat(spec)


def about() -> dict[str, str]:
    """Return who writes, and with what: MLflow's columns of user and source."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        user = "unknown"
    return {"mlflow.user": user, "mlflow.source.name": "mtlscale", "mlflow.source.type": "LOCAL"}


def inputs_of(run: Run, record: RunRecord) -> tuple[Input, ...]:
    """Return the data by split.

    MLflow keeps one entry per name and digest, so the names of all splits but train include the split.
    """
    source = json.dumps({"tags": {"mlflow.source.name": "mtlscale prepare", **_flat(run.spec.get("dataset", {}))}})
    return tuple(
        Input(run.dataset if split == "train" else f"{run.dataset}/{split}", run.fingerprint[:_DIGEST], source, split)
        for split in dict.fromkeys(("train", *record.metrics))
    )


def end_tags(record: RunRecord) -> dict[str, str]:
    """Return the tags of a run that has ended: its status, origin, versions, phases and structure."""
    return {
        "mtlscale.status": record.status,
        "mtlscale.revision": record.revision,
        **({"mlflow.source.git.commit": record.revision.rstrip("+")} if record.revision else {}),
        "mtlscale.hardware": record.hardware,
        **{f"version.{name}": version for name, version in record.versions.items()},
        **{f"mtlscale.phase.{phase.name}": _phase(phase) for phase in record.phases},
        **_structure(record),
        **_error(record),
    }


def files_of(update: RunUpdate) -> tuple[tuple[Path, ...], dict[str, str]]:
    """Return the files in a run's folder that MLflow keeps, and the record of a run that failed before it had one."""
    folder, record = update.folder, update.record
    files = () if folder is None else tuple(folder / name for name in _FILES if (folder / name).exists())
    has_record = any(file.name == RECORD for file in files)
    return files, {} if has_record or record is None else {RECORD: record.model_dump_json()}


def trial_entry(update: RunUpdate, parent: str, about: Mapping[str, str]) -> Entry:
    """Return the entry of a trial: its settings and its score, without its epochs."""
    run, record = update.run, update.record
    assert record is not None

    values = {"seconds": record.seconds, "epochs": float(len(record.epochs))}
    if update.score is not None:
        values["val.score"] = float(update.score)

    return Entry(
        run.run_id,
        status=outcome(record),
        started=milliseconds(record.started),
        ended=milliseconds(record.finished),
        tags={
            **run_tags(run, "trial"),
            **about,
            "mlflow.parentRunId": parent,
            "mtlscale.status": record.status,
            **_error(record),
        },
        params={"dataset": run.dataset, "method": run.method, **{key: str(value) for key, value in run.trial.items()}},
        metrics=[(key, value, 0) for key, value in values.items()],
    )


def _error(record: RunRecord) -> dict[str, str]:
    return {"mtlscale.error": record.error[:_LONGEST]} if record.error else {}


def _phase(phase: PhaseCost) -> str:
    return f"{phase.phase_id}, reused" if phase.reused else phase.phase_id


def _structure(record: RunRecord) -> dict[str, str]:
    """Return the learned structure of the network as JSON; if it is too long, only record.json has it."""
    text = json.dumps(record.structure, separators=(",", ":")) if record.structure else ""
    return {"mtlscale.structure": text} if 0 < len(text) <= _LONGEST else {}


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    result = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result.update(_flat(value, f"{prefix}{key}."))
        elif value is not None:
            result[f"{prefix}{key}"] = str(value)[:_LONGEST]
    return result
