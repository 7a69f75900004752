"""A prepared set through an exported model: its metrics, and what the network said on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Batch, Outputs, PreparedData, Workers, load_prepared
from mtlscale.data.readers import open_reader
from mtlscale.data.views import viewed
from mtlscale.exported.description import Description
from mtlscale.exported.inputs import Reader
from mtlscale.records import Metrics
from mtlscale.spec import TaskSuite, UserError
from mtlscale.training.batches import Batches
from mtlscale.training.evaluate import evaluate

Tell = Callable[[Batch, dict[str, Tensor]], None]  # a batch, and task -> scores on the host


def measure(
    module: MultiTaskModule,
    data: PreparedData,
    split: str,
    *,
    device: torch.device,
    dtype: torch.dtype,
    batch_size: int,
    tell: Tell | None = None,
) -> Metrics:
    """Task -> metric -> value on a split, "loss" included, by what training measures with. tell: hears of all batches,
    in the order of each stream's rows."""
    reader, _ = open_reader(data, "auto", device=device, dtype=dtype)
    batches = Batches(reader, data.suite, device=device, dtype=dtype, workers=Workers(), eval_batch_size=batch_size)
    model = module if tell is None else _Heard(module, tell)
    return evaluate(model, batches.of_split(split), data.suite, device, Workers())


class _Heard(MultiTaskModule):
    """A network of whose predictions somebody is told."""

    def __init__(self, module: nn.Module, tell: Tell) -> None:
        super().__init__()
        self.module, self.tell = module, tell

    def forward(self, batch: Batch) -> Outputs:
        found: Outputs = self.module(batch)
        self.tell(batch, {name: found.predictions[name].cpu() for name in batch.tasks})
        return found


def as_exported(folder: Path, split: str, description: Description, reader: Reader) -> PreparedData:
    """The prepared set in a folder with the model's tasks and metrics. `UserError` where it is another kind of set, has
    no such split, or lacks one of the tasks."""
    data = load_prepared(folder)
    if split not in data.splits:
        raise UserError(f"{folder} has no split {split!r}; it has: {', '.join(data.splits)}")
    suite = description.suite
    _check_inputs(folder, data.suite, suite)
    _check_words(folder, data, description, reader)
    known = {task.name: task for task in data.suite.tasks}
    for task in suite.tasks:
        other = known.get(task.name)
        if other is None:
            raise UserError(f"{folder} has no task {task.name}; it has: {', '.join(known)}")
        if (other.loss, other.outputs, other.classes) != (task.loss, task.outputs, task.classes):
            raise UserError(
                f"task {task.name} of {folder} has loss {other.loss} and {other.outputs} outputs, the model's "
                f"{task.loss} and {task.outputs}, or other classes; prepare it as the run's data were"
            )
    return replace(viewed(data, [task.name for task in suite.tasks], None), suite=suite)


def _check_inputs(folder: Path, found: TaskSuite, wanted: TaskSuite) -> None:
    for what, one, other in (
        ("inputs of the kind", found.input_kind, wanted.input_kind),
        ("inputs of shape", list(found.input_shape), list(wanted.input_shape)),
        ("inputs", found.inputs, wanted.inputs),
    ):
        if one != other:
            raise UserError(
                f"{folder} has {what} {one}, the model reads {other}; prepare it with the options the run's data had"
            )


def _check_words(folder: Path, data: PreparedData, description: Description, reader: Reader) -> None:
    """Token ids mean nothing in another vocabulary."""
    if data.suite.input_kind != "tokens" or data.manifest.fingerprint == description.run.fingerprint.partition("+")[0]:
        return
    wanted, found = description.suite, data.suite
    same = wanted.extras.get("tokenizer") == found.extras.get("tokenizer")
    if same and wanted.extras.get("tokenizer") is None and "vocabulary" in found.extras:
        same = reader.vocabulary == list(found.extras["vocabulary"])
    if not same:
        raise UserError(f"{folder} has token ids of another vocabulary; give the texts themselves instead")
