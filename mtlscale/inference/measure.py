"""Measurement of an exported model on a prepared set: its metrics, and the scores of every batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import TaskSuite, UserError
from mtlscale.data import Batch, Outputs, PreparedData, Workers, load_prepared
from mtlscale.data.readers.random_access import open_reader
from mtlscale.data.readers.views import viewed
from mtlscale.inference.description import Description
from mtlscale.inference.inputs.inputs import InputReader
from mtlscale.records import Metrics
from mtlscale.training.batches import Batches
from mtlscale.training.evaluation.evaluate import evaluate

PredictionCallback = Callable[[Batch, dict[str, Tensor]], None]  # a batch, and task -> scores on the host


def measure(
    module: MultiTaskModule,
    data: PreparedData,
    split: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    tell: PredictionCallback | None = None,
) -> Metrics:
    """Return task -> metric -> value on a split, "loss" included, measured as training does.

    `tell` receives every batch, in the order of each stream's rows.
    """
    reader, _ = open_reader(data, "auto", device=device, dtype=dtype)
    batches = Batches(reader, data.suite, device=device, dtype=dtype, workers=Workers(), eval_batch_size=batch_size)
    model = module if tell is None else _PredictionTap(module, tell)
    return evaluate(model, batches.of_split(split), data.suite, device, Workers())


class _PredictionTap(MultiTaskModule):
    """Wrapper of a network that passes the predictions of every batch on."""

    def __init__(self, module: nn.Module, tell: PredictionCallback) -> None:
        super().__init__()
        self.module, self.callback = module, tell

    def forward(self, batch: Batch) -> Outputs:
        outputs: Outputs = self.module(batch)
        self.callback(batch, {name: outputs.predictions[name].cpu() for name in batch.tasks})
        return outputs


def as_exported(folder: Path, split: str, description: Description, reader: InputReader) -> PreparedData:
    """Load the prepared set in a folder, with the model's tasks and metrics.

    Raises:
        UserError: The set is of another kind, has no such split, or lacks one of the tasks.
    """
    data = load_prepared(folder)
    if split not in data.splits:
        raise UserError(f"{folder} has no split {split!r}; it has: {', '.join(data.splits)}")

    suite = description.suite
    _check_inputs(folder, data.suite, suite)
    _check_words(folder, data, description, reader)

    tasks_of_set = {task.name: task for task in data.suite.tasks}
    for task in suite.tasks:
        set_task = tasks_of_set.get(task.name)
        if set_task is None:
            raise UserError(f"{folder} has no task {task.name}; it has: {', '.join(tasks_of_set)}")
        if (set_task.loss, set_task.outputs, set_task.classes) != (task.loss, task.outputs, task.classes):
            raise UserError(
                f"task {task.name} of {folder} has loss {set_task.loss} and {set_task.outputs} outputs, the model's "
                f"{task.loss} and {task.outputs}, or other classes; prepare it as the run's data were"
            )

    return replace(viewed(data, [task.name for task in suite.tasks], None), suite=suite)


def _check_inputs(folder: Path, data_suite: TaskSuite, model_suite: TaskSuite) -> None:
    for label, actual, expected in (
        ("inputs of the kind", data_suite.input_kind, model_suite.input_kind),
        ("inputs of shape", list(data_suite.input_shape), list(model_suite.input_shape)),
        ("inputs", data_suite.inputs, model_suite.inputs),
    ):
        if actual != expected:
            raise UserError(
                f"{folder} has {label} {actual}, the model reads {expected}; "
                "prepare it with the options the run's data had"
            )


def _check_words(folder: Path, data: PreparedData, description: Description, reader: InputReader) -> None:
    """Raise `UserError` if the set's token ids belong to another vocabulary."""
    if data.suite.input_kind != "tokens" or data.manifest.fingerprint == description.run.fingerprint.partition("+")[0]:
        return
    model_suite, set_suite = description.suite, data.suite
    same_words = model_suite.extras.get("tokenizer") == set_suite.extras.get("tokenizer")
    if same_words and model_suite.extras.get("tokenizer") is None and "vocabulary" in set_suite.extras:
        same_words = reader.vocabulary == list(set_suite.extras["vocabulary"])
    if not same_words:
        raise UserError(f"{folder} has token ids of another vocabulary; give the texts themselves instead")
