"""Calls of MLflow's client that write one run, or an update of it."""

from __future__ import annotations

import hashlib
import posixpath
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mtlscale.tracking.entries import Entry, Input

_NAME_TAG = "mtlscale.name."  # before a mapped name, in the key of the tag that has the true one
_LONGEST_KEY, _LONGEST_VALUE = 200, 5000  # characters; MLflow's limits are a little above
_LONGEST_SOURCE = 60_000  # of a data set's settings
_TAKEN = re.compile(r"[/\w.\- :]+")  # what MLflow takes as a name
_MAPPED = re.compile(r".*_[0-9a-f]{12}", re.DOTALL)
_METRICS_PER_CALL = 800  # MLflow takes 1,000 values in a call, parameters and tags among them


def write_entry(client: Any, experiment_id: str, entry: Entry, on_created: Callable[[Entry], None]) -> None:
    """Write an entry; the status comes last, so a run that is FINISHED in MLflow is complete.

    Args:
        experiment_id: MLflow's id of the experiment in which new runs are made.
        entry: What is written. A new run's id is set in it.
        on_created: Receives the entry of a new run before the rest of it is written.
    """
    from mlflow.entities import Metric, Param, RunTag

    names = {*entry.tags, *entry.params, *(key for key, _, _ in entry.metrics)}
    tags = _sound(entry.tags) | true_names(names)
    params = _sound(entry.params)
    if not entry.mine:
        entry.mine = client.create_run(experiment_id, start_time=entry.started, tags=tags).info.run_id
        on_created(entry)
        tags = {}
    elif entry.ended is None and entry.status == "RUNNING" and params:
        client.update_run(entry.mine, status="RUNNING")  # started earlier and now resumed

    for file in entry.files:  # while the run is small: MLflow reads all of it for this
        client.log_artifact(entry.mine, str(file))
    for name, text in entry.texts.items():
        client.log_text(entry.mine, text, name)

    timestamp = int(time.time() * 1000)
    metrics = [Metric(sound_name(key), value, timestamp, step) for key, value, step in entry.metrics]
    first_batch, further = metrics[:_METRICS_PER_CALL], metrics[_METRICS_PER_CALL:]
    client.log_batch(
        entry.mine,
        metrics=first_batch,
        params=[Param(key, value) for key, value in params.items()],
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

    source = sound_value(dataset_input.source, _LONGEST_SOURCE)
    dataset = Dataset(sound_value(dataset_input.name), dataset_input.digest, "code", source)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", dataset_input.context)])


def sound_name(name: str) -> str:
    """Return the name that MLflow gets of a parameter, metric or tag: the same, if MLflow takes it.

    Another one keeps what MLflow takes of it and gets a hash, so that unlike names stay unlike.
    """
    is_path = posixpath.normpath(name) != name or name.startswith(("..", "/"))
    if _TAKEN.fullmatch(name) and len(name) <= _LONGEST_KEY and not is_path and not _MAPPED.fullmatch(name):
        return name
    readable = re.sub(r"[^\w.\- :]", "_", name).strip(" .")[: _LONGEST_KEY - 13]
    return f"{readable}_{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:12]}"


def sound_value(text: str, longest: int = _LONGEST_VALUE) -> str:
    """Return a text that every database of MLflow takes: of bounded length, without NUL and halves of characters."""
    return text[:longest].replace("\0", "\N{REPLACEMENT CHARACTER}").encode(errors="replace").decode()


def true_names(names: Iterable[str]) -> dict[str, str]:
    """Return the tags that keep the true names of those that MLflow does not take."""
    return {f"{_NAME_TAG}{sound}": sound_value(name) for name in sorted(names) if (sound := sound_name(name)) != name}


def _sound(texts: Mapping[str, str]) -> dict[str, str]:
    return {sound_name(name): sound_value(text) for name, text in texts.items()}
