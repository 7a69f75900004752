"""Files in, rows of predictions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mtlscale.data import Batch, read_manifest
from mtlscale.data.prepared import read_ids
from mtlscale.exported.features import Unfamiliar
from mtlscale.exported.files import parts
from mtlscale.exported.model import ExportedModel
from mtlscale.exported.predictions import Prediction, prediction_of
from mtlscale.exported.results import Sink, columns_of
from mtlscale.records import Metrics
from mtlscale.spec import Task, UserError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Told:
    """How many inputs were predicted, which were left out, and what training has nothing like."""

    count: int = 0
    skipped: list[str] = field(default_factory=list)
    unfamiliar: Unfamiliar = field(default_factory=Unfamiliar)


def predict_files(
    model: ExportedModel,
    inputs: Sequence[str],
    out: Sink,
    *,
    task: Sequence[str] | None = None,
    skip_bad: bool = False,
    probabilities: bool = False,
) -> Told:
    """Predict raw inputs: a row for each, with its number or path, and for each task the columns of
    `results.columns_of`, `<task>` and `<task>.…`; where a table says which task a row is of, `task`, `label`, `score`.
    """
    told = Told()
    by_task = model.suite.inputs == "per_task" and not task
    kind = model.description.input.kind
    for part in parts(inputs, kind, by_task=by_task, batch=model.batch_size):
        names = model.named(part.task or (list(task) if task else None))
        read = model.reader.some(part.inputs, skip_bad=skip_bad, rows=part.names)
        told.skipped += read.skipped
        told.unfamiliar.add(read.unfamiliar)
        if not read.kept:
            continue
        found = model.predict(read.inputs, names)
        columns: dict[str, Any] = {part.column: [part.names[place] for place in read.kept]}
        if part.task is None:
            for name, prediction in found.items():
                columns |= columns_of(prediction, name, f"{name}.", probabilities=probabilities)
        else:
            columns["task"] = [part.task] * len(read.kept)
            columns |= _long(found[part.task], model.tasks, probabilities)
        out.write(_table(columns))
        told.count += len(read.kept)
    if not told.count:
        raise UserError(f"there is nothing to predict{f': {told.skipped[0]}' if told.skipped else ''}")
    return told


def predict_set(
    model: ExportedModel,
    folder: Path,
    split: str,
    out: Sink | None,
    *,
    task: Sequence[str] | None = None,
    probabilities: bool = False,
) -> Metrics:
    """The metrics of a prepared set's split; its predictions go to `out`: samples by their ids, with what is true.

    Tasks with inputs of their own have rows of their own: `id`, `task`, `label`, `score`, `truth`.
    """
    wanted = list(model.tasks) if not task else model.named(list(task))
    writer = None if out is None else _SetWriter(model, folder, split, out, wanted, probabilities)
    metrics = model.evaluate(folder, split, tell=writer)
    return {name: metrics[name] for name in wanted}


class _SetWriter:
    """Writes the predictions of a prepared set's batches as they come."""

    def __init__(
        self, model: ExportedModel, folder: Path, split: str, out: Sink, wanted: Sequence[str], probabilities: bool
    ) -> None:
        self._model, self._out, self._wanted, self._probabilities = model, out, wanted, probabilities
        self._folder, self._split = folder, split
        self._ids: dict[str, list[str]] = {}
        self._seen: dict[str, int] = {}
        self._whole = read_manifest(folder).suite.inputs == "shared"

    def __call__(self, batch: Batch, scores: dict[str, Tensor]) -> None:
        first = self._seen.get(batch.stream, 0)
        if batch.stream not in self._ids:
            self._ids = {batch.stream: read_ids(self._folder, self._split, batch.stream)}
        self._seen[batch.stream] = first + len(batch.samples)
        ids = self._ids[batch.stream][first : first + len(batch.samples)]
        tasks = self._model.tasks
        columns: dict[str, Any] = {"id": ids}
        for name in self._wanted:
            if name not in scores:
                continue
            found = prediction_of(tasks[name], scores[name])
            truth = _truth(tasks[name], batch.samples.targets[name].cpu())
            if self._whole:
                columns |= columns_of(found, name, f"{name}.", probabilities=self._probabilities)
                columns[f"{name}.truth"] = truth
            else:
                rows = {"id": ids, "task": [name] * len(ids), **_long(found, tasks, self._probabilities)}
                self._out.write(_table({**rows, "truth": _as_text(truth) if _mixed(tasks) else truth}))
        if self._whole and len(columns) > 1:
            self._out.write(_table(columns))


def _long(prediction: Prediction, tasks: dict[str, Task], probabilities: bool) -> dict[str, Any]:
    """The columns of rows that are of one task, alike for all tasks."""
    import pyarrow as pa

    found = columns_of(prediction, "label", "")
    if _mixed(tasks):
        found["label"] = _as_text(found["label"].to_pylist())
        found.setdefault("score", pa.nulls(len(prediction), pa.float32()))
    if probabilities and prediction.probabilities is not None:
        found["probabilities"] = pa.array(prediction.probabilities.reshape(len(prediction), -1).tolist())
    return found


def _mixed(tasks: dict[str, Task]) -> bool:
    """Whether the labels of tasks are of several kinds."""
    return len({(task.loss, task.outputs if task.loss != "cross_entropy" else 0, bool(task.classes))
                for task in tasks.values()}) > 1  # fmt: skip


def _as_text(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _truth(task: Task, target: Tensor) -> list[Any]:
    """Targets as labels are written; None where there is none."""
    if task.loss == "cross_entropy" and target.ndim == 1:
        known = len(task.classes) == task.outputs
        return [None if code < 0 else task.classes[code] if known else code for code in target.tolist()]
    if task.per == "token" and len(task.classes) == task.outputs:
        return [[None if code < 0 else task.classes[code] for code in row] for row in target.tolist()]
    if task.loss == "bce" and target[0].numel() == 1:
        known = len(task.classes) == 2
        codes = [None if value != value or value < 0 else int(value) for value in target.reshape(-1).tolist()]
        return [code if code is None or not known else task.classes[code] for code in codes]
    return [None if value != value else value for value in target.tolist()]


def _table(columns: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    return pa.table(columns)
