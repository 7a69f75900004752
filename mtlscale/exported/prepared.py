"""Prepared sets as an exported model measures them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mtlscale.data import PreparedData, load_prepared
from mtlscale.data.views import viewed
from mtlscale.exported.description import Description
from mtlscale.exported.inputs import Reader
from mtlscale.spec import TaskSuite, UserError


def as_exported(folder: Path, split: str, description: Description, reader: Reader) -> PreparedData:
    """The prepared set in a folder with the model's tasks and metrics. `UserError` where it is another kind of set, has
    no such split, or lacks one of the tasks."""
    data = load_prepared(folder)
    if split not in data.splits:
        raise UserError(f"{folder} has no split {split!r}; it has: {', '.join(data.splits)}")
    suite = description.suite
    _check_inputs(folder, data.suite, description)
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


def _check_inputs(folder: Path, found: TaskSuite, description: Description) -> None:
    wanted = description.suite
    for what, one, other in (
        ("inputs", found.input_kind, wanted.input_kind),
        ("input shape", list(found.input_shape), list(wanted.input_shape)),
        ("inputs of tasks", found.inputs, wanted.inputs),
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
