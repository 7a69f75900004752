"""Prediction of files: inputs in, rows of predictions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mtlscale.config import Task, TaskSuite, UserError
from mtlscale.data import Batch, read_manifest
from mtlscale.data.readers.prepared import read_ids
from mtlscale.inference.inputs.features import Unfamiliar
from mtlscale.inference.inputs.files import input_chunks
from mtlscale.inference.labels import LabelMeter
from mtlscale.inference.model import ExportedModel
from mtlscale.inference.predictions import Prediction, columns_of, in_units, prediction_of
from mtlscale.inference.results import PredictionWriter
from mtlscale.records import Metrics

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class PredictionSummary:
    """Summary of a prediction: number of predicted inputs, the skipped ones, and those unlike the training data.

    Attributes:
        predicted: Number of predicted inputs.
        skipped: What is wrong with each of the others.
        unfamiliar: Inputs unlike the training data.
        labels: The labels that stand in the file, and what the predictions reach by them.
    """

    labels: LabelMeter
    predicted: int = 0
    skipped: list[str] = field(default_factory=list)
    unfamiliar: Unfamiliar = field(default_factory=Unfamiliar)


def predict_files(
    model: ExportedModel,
    inputs: Sequence[str],
    out: PredictionWriter,
    *,
    task: Sequence[str] | None = None,
    skip_bad: bool = False,
    probabilities: bool = False,
) -> PredictionSummary:
    """Predict raw inputs, and write a row for each with its number or path.

    A row has the columns of `columns_of` for each task, `<task>` and `<task>.…`. If a table names the task of each row,
    it has `task`, `label`, `score` instead.
    """
    summary = PredictionSummary(LabelMeter(model.suite))
    by_task = model.suite.inputs == "per_task" and not task
    kind = model.description.input.kind

    form, texts = model.reader.file_form, model.reader.text_columns
    for part in input_chunks(inputs, kind, form, texts, by_task=by_task, batch=model.batch_size):
        names = model.named(part.task or (list(task) if task else None))
        converted = model.reader.convert(part.inputs, skip_bad=skip_bad, rows=part.names)
        summary.skipped += converted.skipped
        summary.unfamiliar.add(converted.unfamiliar)
        if not converted.positions:
            continue

        predictions = model.predict_converted(converted.inputs, names)
        if hasattr(part.inputs, "column_names"):
            for name, prediction in predictions.items():
                summary.labels.add(model.tasks[name], part.inputs, converted.positions, prediction)
        columns: dict[str, Any] = {part.column: [part.names[index] for index in converted.positions]}
        if part.task is None:
            for name, prediction in predictions.items():
                columns |= columns_of(prediction, name, f"{name}.", probabilities=probabilities)
        else:
            columns["task"] = [part.task] * len(converted.positions)
            columns |= _long(predictions[part.task], model.tasks, probabilities)

        out.write(_table(columns))
        summary.predicted += len(converted.positions)

    if not summary.predicted:
        raise UserError(f"there is nothing to predict{f': {summary.skipped[0]}' if summary.skipped else ''}")
    return summary


def predict_set(
    model: ExportedModel,
    folder: Path,
    split: str,
    out: PredictionWriter | None,
    *,
    task: Sequence[str] | None = None,
    probabilities: bool = False,
) -> Metrics:
    """Return the metrics of a prepared set's split, and write its predictions to `out`.

    They are identified by sample ids and come with the true labels. Tasks with inputs of their own have rows of their
    own: `id`, `task`, `label`, `score`, `truth`.
    """
    task_names = list(model.tasks) if not task else model.named(list(task))
    writer = None if out is None else _SetWriter(model, folder, split, out, task_names, probabilities)
    metrics = model.evaluate(folder, split, tell=writer)
    return {name: metrics[name] for name in task_names}


class _SetWriter:
    """Callback that writes the predictions of a prepared set's batches as they come."""

    def __init__(
        self,
        model: ExportedModel,
        folder: Path,
        split: str,
        out: PredictionWriter,
        columns: Sequence[str],
        probabilities: bool,
    ) -> None:
        self._model, self._out, self._columns, self._probabilities = model, out, columns, probabilities
        self._folder, self._split = folder, split
        self._ids: dict[str, list[str]] = {}
        self._seen: dict[str, int] = {}
        self._whole_set = read_manifest(folder).suite.inputs == "shared"

    def __call__(self, batch: Batch, scores: dict[str, Tensor]) -> None:
        first = self._seen.get(batch.stream, 0)
        if batch.stream not in self._ids:
            self._ids = {batch.stream: read_ids(self._folder, self._split, batch.stream)}
        self._seen[batch.stream] = first + len(batch.samples)
        ids = self._ids[batch.stream][first : first + len(batch.samples)]

        tasks = self._model.tasks
        columns: dict[str, Any] = {"id": ids}
        for name in self._columns:
            if name not in scores:
                continue
            prediction = prediction_of(self._model.suite, tasks[name], scores[name])
            truth = _truth(self._model.suite, tasks[name], batch.samples.targets[name].cpu())
            if self._whole_set:
                columns |= columns_of(prediction, name, f"{name}.", probabilities=self._probabilities)
                columns[f"{name}.truth"] = truth
            else:
                rows = {"id": ids, "task": [name] * len(ids), **_long(prediction, tasks, self._probabilities)}
                self._out.write(_table({**rows, "truth": _as_text(truth) if _mixed(tasks) else truth}))

        if self._whole_set and len(columns) > 1:
            self._out.write(_table(columns))


def _long(prediction: Prediction, tasks: dict[str, Task], probabilities: bool) -> dict[str, Any]:
    """Return the columns of rows that belong to one task; they are the same for all tasks."""
    import pyarrow as pa

    columns = columns_of(prediction, "label", "")
    if _mixed(tasks):
        columns["label"] = _as_text(columns["label"].to_pylist())
        columns.setdefault("score", pa.nulls(len(prediction), pa.float32()))
    if probabilities and prediction.probabilities is not None:
        columns["probabilities"] = pa.array(prediction.probabilities.reshape(len(prediction), -1).tolist())
    return columns


def _mixed(tasks: dict[str, Task]) -> bool:
    return len({(task.loss, task.outputs if task.loss != "cross_entropy" else 0, bool(task.classes))
                for task in tasks.values()}) > 1  # fmt: skip


def _as_text(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _truth(suite: TaskSuite, task: Task, target: Tensor) -> list[Any]:
    """Return targets in the form of labels; None for a missing target."""
    if task.loss == "cross_entropy" and target.ndim == 1:
        has_names = len(task.classes) == task.outputs
        return [None if code < 0 else task.classes[code] if has_names else code for code in target.tolist()]
    if task.per == "token" and len(task.classes) == task.outputs:
        return [[None if code < 0 else task.classes[code] for code in row] for row in target.tolist()]

    if task.loss == "bce" and target[0].numel() == 1:
        has_names = len(task.classes) == 2
        codes = [None if value != value or value < 0 else int(value) for value in target.reshape(-1).tolist()]
        return [code if code is None or not has_names else task.classes[code] for code in codes]
    numbers = in_units(suite, task.name, target.numpy())
    return [None if value != value else value for value in numbers.tolist()]


def _table(columns: dict[str, Any]) -> pa.Table:
    import pyarrow as pa

    return pa.table(columns)
