"""What MLflow is told of a run: parameters, metrics and tags, from our records. Nothing here talks to MLflow."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from mtlscale.records import Epoch, PhaseCost, RunRecord
from mtlscale.spec import Run

_LONGEST = 5000  # characters of a value; MLflow's limits are a little above
RECORD, SETTINGS = "record.json", "experiment.json"  # of a run, and of the experiment's own
_FILES = (RECORD, "model.pt", "pictures.png", "error.txt")


@dataclass
class Told:
    """What is known of a run and not in MLflow yet. `folder`: where a run that has ended left its files."""

    run: Run
    epochs: list[Epoch] = field(default_factory=list)
    record: RunRecord | None = None
    folder: Path | None = None
    trial: bool = False
    score: float | None = None  # of a trial


@dataclass
class Entry:
    """What is written of one MLflow run in one go; times in milliseconds."""

    run_id: str  # ours
    mine: str = ""  # MLflow's; "" where the run is still to be made
    status: str = "RUNNING"
    started: int = 0
    ended: int | None = None
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)  # key, value, step
    files: tuple[Path, ...] = ()
    texts: dict[str, str] = field(default_factory=dict)  # file name -> content, of what lies in no folder


def milliseconds(moment: str = "") -> int:
    """An ISO 8601 time; now, where there is none."""
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1000)
    except ValueError:
        return int(time.time() * 1000)


def outcome(record: RunRecord) -> str:
    """MLflow's status of a run that has ended."""
    return "FINISHED" if record.status == "finished" else "FAILED"


def run_tags(run: Run, parent: str, kind: str) -> dict[str, str]:
    name = "trial" if kind == "trial" else f"seed {run.seed}"
    return {
        "mlflow.runName": f"{run.dataset}/{run.method}/{name}",
        "mlflow.parentRunId": parent,
        "mtlscale.kind": kind,
        "mtlscale.run_id": run.run_id,
        "mtlscale.dataset": run.dataset,
        "mtlscale.method": run.method,
        **({} if kind == "trial" else {"mtlscale.fingerprint": run.fingerprint}),
    }


def run_params(run: Run) -> dict[str, str]:
    return _flat(run.spec)


def epoch_metrics(run: Run, epochs: Iterable[Epoch], last: int) -> tuple[list[tuple[str, float, int]], int]:
    """Those of the epochs after the one that was written last, and the new last one."""
    metrics: list[tuple[str, float, int]] = []
    for epoch in epochs:
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
        values |= _trace_metrics(epoch)
        metrics += [(key, float(value), step) for key, value in values.items()]
    return metrics, last


def end_metrics(run: Run, record: RunRecord) -> list[tuple[str, float, int]]:
    """Results, cost and counters of a run that has ended, at its last epoch; a mean over tasks where they share a main
    metric alone."""
    values: dict[str, float] = {
        f"{split}.{metric}.{task}": value
        for split, tasks in record.metrics.items()
        if split != "val"
        for task, found in tasks.items()
        for metric, value in found.items()
    }
    for split, tasks in record.metrics.items():
        mains = [tasks[task][metric] for task, metric in record.main_metrics.items() if task in tasks]
        if record.shared_metric is not None and mains:
            values[f"{split}.mean"] = sum(mains) / len(mains)
    values |= {
        "seconds": record.seconds,
        "samples_per_second": record.samples_per_second,
        "peak_memory_mb": record.peak_memory_mb,
        "parameters": record.parameters,
        **{f"counter.{name}": count for name, count in record.counters.items()},
    }
    values |= {f"phase.{phase.name}.seconds": phase.seconds for phase in record.phases}
    if record.chosen_epoch is not None:
        values["chosen_epoch"] = record.chosen_epoch
    last = 0 if not record.epochs else run.epochs_behind(record.epochs[-1].phase, record.epochs[-1].epoch)
    return [(key, float(value), last) for key, value in values.items()]


def end_tags(record: RunRecord) -> dict[str, str]:
    return {
        "mtlscale.status": record.status,
        "mtlscale.revision": record.revision,
        "mtlscale.hardware": record.hardware,
        **{f"version.{name}": version for name, version in record.versions.items()},
        **{f"mtlscale.phase.{phase.name}": _phase(phase) for phase in record.phases},
        **_structure(record),
        **_error(record),
    }


def files_of(told: Told) -> tuple[tuple[Path, ...], dict[str, str]]:
    """What a run leaves in its folder and MLflow keeps, and the record of one that failed before it had a folder."""
    folder, record = told.folder, told.record
    files = () if folder is None else tuple(folder / name for name in _FILES if (folder / name).exists())
    there = any(file.name == RECORD for file in files)
    return files, {} if there or record is None else {RECORD: record.model_dump_json()}


def trial_entry(told: Told, parent: str) -> Entry:
    """A trial: its settings and how good it was, without its epochs."""
    run, record = told.run, told.record
    assert record is not None
    values = {"seconds": record.seconds, "epochs": float(len(record.epochs))}
    if told.score is not None:
        values["val.score"] = float(told.score)
    return Entry(
        run.run_id,
        status=outcome(record),
        started=milliseconds(record.started),
        ended=milliseconds(record.finished),
        tags={**run_tags(run, parent, "trial"), "mtlscale.status": record.status, **_error(record)},
        params={key: str(value) for key, value in run.trial.items()},
        metrics=[(key, value, 0) for key, value in values.items()],
    )


def _error(record: RunRecord) -> dict[str, str]:
    return {"mtlscale.error": record.error[:_LONGEST]} if record.error else {}


def _trace_metrics(epoch: Epoch) -> dict[str, float]:
    """Numbers, and those by task; lists are in the record alone."""
    values: dict[str, float] = {}
    for name, value in epoch.traces.items():
        if isinstance(value, int | float):
            values[f"trace.{name}"] = value
        elif isinstance(value, dict):
            values |= {f"trace.{name}.{task}": of for task, of in value.items() if isinstance(of, int | float)}
    return values


def _phase(phase: PhaseCost) -> str:
    return f"{phase.phase_id}, reused" if phase.reused else phase.phase_id


def _structure(record: RunRecord) -> dict[str, str]:
    """What was learned of the network as JSON; where it is too long, record.json has it."""
    text = json.dumps(record.structure, separators=(",", ":")) if record.structure else ""
    return {"mtlscale.structure": text} if 0 < len(text) <= _LONGEST else {}


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested settings as dotted parameters."""
    result = {}
    for key, value in values.items():
        if isinstance(value, dict):
            result.update(_flat(value, f"{prefix}{key}."))
        elif value is not None:
            result[f"{prefix}{key}"] = str(value)[:_LONGEST]
    return result
