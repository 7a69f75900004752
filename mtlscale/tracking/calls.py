"""Calls of MLflow's client that write one run, or an update of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from mtlscale.tracking.entries import Entry, Input

_METRICS_PER_CALL = 800  # MLflow takes 1,000 values in a call, parameters and tags among them


def write_entry(client: Any, experiment_id: str, entry: Entry, on_created: Callable[[Entry], None]) -> None:
    """Write an entry; the status comes last, so a run that is FINISHED in MLflow is complete.

    Args:
        client: MLflow's client.
        experiment_id: MLflow's id of the experiment in which new runs are made.
        entry: What is written. A new run's id is set in it.
        on_created: Receives the entry of a new run before the rest of it is written.
    """
    from mlflow.entities import Metric, Param, RunTag

    tags = entry.tags
    if not entry.mine:
        entry.mine = client.create_run(experiment_id, start_time=entry.started, tags=tags).info.run_id
        on_created(entry)
        tags = {}
    elif entry.ended is None and entry.status == "RUNNING" and entry.params:
        client.update_run(entry.mine, status="RUNNING")  # started earlier and now resumed

    for file in entry.files:  # while the run is small: MLflow reads all of it for this
        client.log_artifact(entry.mine, str(file))
    for name, text in entry.texts.items():
        client.log_text(entry.mine, text, name)

    timestamp = int(time.time() * 1000)
    metrics = [Metric(key, value, timestamp, step) for key, value, step in entry.metrics]
    first_batch, further = metrics[:_METRICS_PER_CALL], metrics[_METRICS_PER_CALL:]
    client.log_batch(
        entry.mine,
        metrics=first_batch,
        params=[Param(key, value) for key, value in entry.params.items()],
        tags=[RunTag(key, value) for key, value in tags.items()],
    )
    for start in range(0, len(further), _METRICS_PER_CALL):
        client.log_batch(entry.mine, metrics=further[start : start + _METRICS_PER_CALL])

    if entry.inputs:
        client.log_inputs(entry.mine, datasets=[_dataset_input(data) for data in entry.inputs])
    if entry.ended is not None:
        client.set_terminated(entry.mine, entry.status, entry.ended)


def _dataset_input(dataset_input: Input) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    dataset = Dataset(dataset_input.name, dataset_input.digest, "code", dataset_input.source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", dataset_input.context)])
