"""Parameters, tags, inputs and files of a run for MLflow, made from our records; nothing here talks to MLflow."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from mtlscale.config import Run
from mtlscale.records import EPOCHS, RunRecord
from mtlscale.tracking.calls import sound_value

_DIGEST, _LONGEST_SOURCE = 36, 60_000  # characters of a data set's digest, and of its settings
_LONGEST = 5000  # characters of a value; MLflow's limits are a little above
RECORD, SETTINGS = "record.json", "experiment.json"  # files of a run, and of the experiment's own MLflow run
MODEL = "model.pt"
_FILES = (RECORD, EPOCHS, MODEL, "pictures.png", "predictions.html", "episodes.png", "error.txt")


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


def knobs_of(spec: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return the settings of a spec by their dotted names."""
    knobs = {}
    for key, value in spec.items():
        if isinstance(value, dict):
            knobs.update(knobs_of(value, f"{prefix}{key}."))
        elif value is not None:
            knobs[f"{prefix}{key}"] = str(value)[:_LONGEST]
    return knobs


def about() -> dict[str, str]:
    """Return who writes, and with what: MLflow's columns of user and source."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container without a name for its user
        user = "unknown"
    return {"mlflow.user": user, "mlflow.source.name": "mtlscale", "mlflow.source.type": "LOCAL"}


def inputs_of(run: Run, record: RunRecord) -> list[Any]:
    """Return the data by split, as MLflow's `DatasetInput`.

    MLflow keeps one entry per name and digest, so the names of all splits but train include the split.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    settings = {"tags": {"mlflow.source.name": "mtlscale prepare", **knobs_of(run.spec.get("dataset", {}))}}
    digest, source = run.fingerprint[:_DIGEST], sound_value(json.dumps(settings), _LONGEST_SOURCE)
    names = {"train": run.dataset} | {split: f"{run.dataset}/{split}" for split in record.metrics if split != "train"}
    return [
        DatasetInput(Dataset(sound_value(name), digest, "code", source), [InputTag("mlflow.data.context", split)])
        for split, name in names.items()
    ]


def end_tags(record: RunRecord) -> dict[str, str]:
    """Return the tags of a run that has ended: its status, origin, versions, phases and structure."""
    return {
        "mtlscale.status": record.status,
        "mtlscale.revision": record.revision,
        **({"mlflow.source.git.commit": record.revision.rstrip("+")} if record.revision else {}),
        "mtlscale.hardware": record.hardware,
        **{f"version.{name}": version for name, version in record.versions.items()},
        **{f"mtlscale.phase.{phase.name}": phase.phase_id + ", reused" * phase.reused for phase in record.phases},
        **_structure(record),
        **error_tags(record),
    }


def files_of(folder: Path) -> list[Path]:
    """Return the files in the folder of a run that has ended that MLflow keeps."""
    return [folder / name for name in _FILES if (folder / name).exists()]


def trial_params(run: Run) -> dict[str, str]:
    """Return the settings that were tried, and the labels."""
    return {"dataset": run.dataset, "method": run.method, **{key: str(value) for key, value in run.trial.items()}}


def error_tags(record: RunRecord) -> dict[str, str]:
    """Return why a run has failed."""
    return {"mtlscale.error": record.error[:_LONGEST]} if record.error else {}


def _structure(record: RunRecord) -> dict[str, str]:
    """Return the learned structure of the network as JSON; if it is too long, only record.json has it."""
    text = json.dumps(record.structure, separators=(",", ":")) if record.structure else ""
    return {"mtlscale.structure": text} if 0 < len(text) <= _LONGEST else {}
