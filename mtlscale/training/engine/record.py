"""Record of a run that has ended, of a single run or of a trial among many."""

from __future__ import annotations

import datetime
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch

from mtlscale.architectures import MultiTaskModule
from mtlscale.balancing import Balancer
from mtlscale.config import Run, TaskSuite
from mtlscale.metrics import higher_is_better, lowest
from mtlscale.records import Epoch, FrontPoint, ItemErrors, Metrics, PhaseCost, RunRecord
from mtlscale.records.record import weights_of_epochs
from mtlscale.training.engine import provenance
from mtlscale.training.evaluation.select import Selection


def run_record(
    run: Run,
    suite: TaskSuite,
    model: MultiTaskModule,
    selection: Selection,
    status: Literal["finished", "diverged"],
    error: str | None = None,
    *,
    metrics: Mapping[str, Metrics],
    last: Mapping[str, Metrics],
    items: ItemErrors | None = None,
    figures: Mapping[str, Mapping[str, float]] | None = None,
    front: Sequence[FrontPoint] = (),
    epochs: Sequence[dict[str, Any]],
    seconds: float,
    train_seconds: float,
    steps: int,
    samples: int,
    started: str,
    departure: float,
    counters: Mapping[str, int],
    workers: int,
    device: torch.device,
    phases: Sequence[PhaseCost] = (),
) -> RunRecord:
    """Return the record of a run that has ended.

    `metrics` and `last` map each split to its metrics at the chosen epoch and after the last one.
    """
    ended_epochs = [Epoch.model_validate(entry) for entry in epochs]
    return RunRecord(
        **_identity(run),
        status=status,
        error=error,
        **_measures(suite),
        metrics=dict(metrics),
        last=dict(last),
        domains=list(suite.domains),
        items=items,
        figures={where: dict(values) for where, values in (figures or {}).items()},
        front=list(front),
        chosen_epoch=selection.best_epoch.get(""),
        chosen_epochs={task: epoch for task, epoch in selection.best_epoch.items() if task},
        epochs=ended_epochs,
        phases=list(phases),
        seconds=seconds,
        train_seconds=train_seconds,
        steps=steps,
        samples=samples,
        peak_memory_mb=provenance.peak_memory_mb(device),
        **_network(model),
        departure=None if math.isnan(departure) else departure,
        survival=_survival(epochs),
        **weights_of_epochs(ended_epochs),
        counters=dict(counters),
        workers=workers,
        hardware=provenance.hardware(device),
        versions=provenance.versions(),
        revision=provenance.revision(),
        started=started,
        finished=now(),
    )


def _identity(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "experiment": run.experiment,
        "dataset": run.dataset,
        "method": run.method,
        "seed": run.seed,
        "spec": run.spec,
        "fingerprint": run.fingerprint,
        "trial": run.trial,
    }


def _measures(suite: TaskSuite) -> dict[str, Any]:
    """Return the record's entries on the metrics of the suite's tasks."""
    metric_names = {metric for task in suite.tasks for metric in task.metrics}
    return {
        "higher_is_better": {**{name: higher_is_better(name) for name in metric_names}, "loss": False},
        "main_metrics": {task.name: task.metrics[0] for task in suite.tasks},
        "lowest": lowest(sorted(metric_names)),
        "deviations": {
            task: float(deviation)
            for task, (_, deviation) in suite.extras.get("target_scaling", {}).items()
            if deviation != 1.0 and task in {task.name for task in suite.tasks}
        },
    }


def _survival(epochs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the means over epochs of each cosine that the trace `survival` has."""
    values = defaultdict[str, list[float]](list)
    for epoch in epochs:
        for name, value in epoch.get("traces", {}).get("survival", {}).items():
            values[name].append(value)
    return {name: statistics.fmean(found) for name, found in values.items()}


def _network(model: MultiTaskModule) -> dict[str, Any]:
    """Return the record's entries on the network: its size and structure."""
    return {
        "parameters": sum(p.numel() for p in model.parameters()) + model.extra_parameter_count(),
        "shared_parameters": sum(p.numel() for p in model.shared_parameters()),
        "structure": model.structure(),
    }


def counters(balancer_counters: Sequence[str], state: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return what a balancer counted."""
    return {name: int(state[name].sum()) for name in balancer_counters if name in state}


def traced(balancer: Balancer, state: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return what a balancer wants noted with each epoch: numbers, and lists of numbers."""
    return {name: state[name].to(torch.float64).tolist() for name in balancer.traced}


def now() -> str:
    """Return this moment, ISO 8601, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
