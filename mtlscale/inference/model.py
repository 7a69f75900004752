"""The loaded form of an exported model: predictions and metrics, without Ray and MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import Task, TaskSuite, UserError, load_plugin, nearest, source_hash
from mtlscale.config.registry.components import component
from mtlscale.data import Batch, Samples
from mtlscale.data.readers.random_access import placed
from mtlscale.inference.description import (
    FOUND,
    MODEL,
    TOKENIZER,
    Description,
    read_description,
)
from mtlscale.inference.exporting import nested
from mtlscale.inference.inputs.inputs import InputReader
from mtlscale.inference.measure import PredictionCallback, as_exported, measure
from mtlscale.inference.network import network
from mtlscale.inference.predictions import Prediction, prediction_of
from mtlscale.records import Metrics


class ExportedModel:
    """Network in evaluation mode with the conversion of raw inputs into its own; made by `load_model`."""

    def __init__(self, folder: Path, description: Description, module: MultiTaskModule, device: torch.device) -> None:
        self.folder, self.description, self.device = folder, description, device
        self.module = module.to(device)
        self.suite: TaskSuite = description.suite
        self.dtype: torch.dtype = getattr(torch, description.spec["training"]["dtype"])
        self.batch_size: int = description.spec["training"]["eval_batch_size"]  # samples that are predicted at a time
        self.reader = InputReader(folder, description)

    def __repr__(self) -> str:
        run = self.description.run
        return f"ExportedModel({run.method} on {run.dataset}, seed {run.seed}: {', '.join(self.tasks)})"

    @property
    def spec(self) -> dict[str, Any]:
        """The resolved settings of the run that trained the model."""
        return self.description.spec

    @property
    def tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.suite.tasks}

    @property
    def metrics(self) -> Metrics:
        """The run's metrics on the test split: task -> metric -> value."""
        return self.description.metrics["test"]

    def predict(
        self, inputs: Any, task: str | Sequence[str] | None = None, *, batch_size: int | None = None
    ) -> dict[str, Prediction]:
        """Return task -> prediction for each of the inputs.

        Args:
            inputs: The network's inputs [N, *shape] (array or tensor); or raw ones: texts (pairs as tuples of two),
                pictures (paths, bytes, Pillow images), a table of features (pandas, pyarrow, mapping of columns); or a
                mapping from tasks to any of these, if each task has inputs of its own.
            task: The task or tasks to predict; None: all.
            batch_size: Samples at a time; another number may change the last digits of the scores.

        Raises:
            UserError: The inputs have another shape or type, or a task does not exist.
        """
        if isinstance(inputs, Mapping) and inputs and set(inputs) <= set(self.tasks):
            return {
                name: self.predict(task_inputs, name, batch_size=batch_size)[name]
                for name, task_inputs in inputs.items()
            }

        names = self.named(task)
        return self.predict_converted(self.reader.tensor(inputs), names, batch_size)

    def named(self, task: str | Sequence[str] | None) -> list[str]:
        """Return the names of the tasks that are meant.

        Raises:
            UserError: A task does not exist, or must be named because each task has inputs of its own.
        """
        all_names = list(self.tasks)
        if task is None:
            if self.suite.inputs == "per_task" and len(all_names) > 1:
                raise UserError(
                    f"each task of {self.suite.name} has inputs of its own; name the task of these, one of: "
                    f"{', '.join(all_names)}"
                )
            return all_names

        names = [task] if isinstance(task, str) else list(task)
        for name in names:
            if name not in all_names:
                raise UserError(f"the model has no task {name!r}: {nearest(str(name), all_names)}")
        return names

    def evaluate(self, folder: Path | str, split: str = "test", *, tell: PredictionCallback | None = None) -> Metrics:
        """Return task -> metric -> value on a split of a prepared set, "loss" included, measured as training does.

        On the set that the model was trained on, the values equal those of the run's record to the last digit, given as
        many threads as the run had (`description.run.threads`); another number may change last digits. `tell` receives
        every batch, and the scores of its tasks.
        """
        data = as_exported(Path(folder), split, self.description, self.reader)
        device_and_dtype: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        return measure(self.module, data, split, batch_size=self.batch_size, tell=tell, **device_and_dtype)

    @torch.inference_mode()
    def predict_converted(
        self, inputs: Tensor, names: Sequence[str], batch_size: int | None = None
    ) -> dict[str, Prediction]:
        """Return task -> prediction of these tasks for inputs [N, *shape] that the model's reader has converted."""
        scores_by_task: dict[str, list[Tensor]] = {name: [] for name in names}
        for part in inputs.split(batch_size or self.batch_size):
            for batch in self._as_batches(part, names):
                scores = self.module(batch).predictions
                for name in batch.tasks:
                    scores_by_task[name].append(scores[name].cpu())
        return {
            name: prediction_of(self.suite, self.tasks[name], torch.cat(parts))
            for name, parts in scores_by_task.items()
        }

    def _as_batches(self, inputs: Tensor, names: Sequence[str]) -> Iterator[Batch]:
        """Yield a batch for each stream that has one of the tasks, with labels that nothing reads."""
        no_labels = torch.empty(len(inputs), 0)
        for stream, tasks in self.suite.streams.items():
            targets = {name: no_labels for name in tasks if name in names}
            if targets:
                samples = placed(Samples(inputs, targets), self.device, self.dtype)
                yield Batch(stream, samples, len(inputs))


def load_model(folder: Path | str, *, device: torch.device | str = "cpu", trust_plugins: bool = False) -> ExportedModel:
    """Load the model in a folder that `mtlscale export` wrote; needs neither Ray nor MLflow.

    Args:
        trust_plugins: Run the code that the folder brings along, if the model has parts that are not shipped.

    Raises:
        UserError: The folder is damaged, or written by another version.
    """
    folder = Path(folder)
    description = read_description(folder)
    _load_plugins(folder, description, trust_plugins)

    suite = description.suite
    state = _tensors(folder / MODEL)
    phase_output = None
    if description.found is not None:
        tensors = _tensors(folder / FOUND) if (folder / FOUND).exists() else {}
        phase_output = nested.restored(description.found, tensors)

    module = network(description.spec, suite, description.phase, phase_output, state, folder / TOKENIZER)

    try:
        torch_device = torch.device(device)
        return ExportedModel(folder, description, module, torch_device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        reason = "torch knows no such device" if reason.startswith("Expected one of") else reason
        raise UserError(f"device {device} cannot be used ({reason}); choose cpu, or cuda for a GPU") from None


def _load_plugins(folder: Path, description: Description, trusted: bool) -> None:
    if not description.plugins:
        return
    if not trusted:
        component_text = "; ".join(f"{plugin.file} ({', '.join(plugin.components)})" for plugin in description.plugins)
        raise UserError(
            f"{folder} brings code of its own: {component_text}; read it, "
            "and pass trust_plugins=True (--trust-plugins) to run it"
        )

    for plugin in description.plugins:
        load_plugin(folder / plugin.file)
        for component_text in plugin.components:
            kind, _, name = component_text.partition(" ")
            if source_hash(component(f"{kind}s", name)) != plugin.source:
                raise UserError(f"{folder / plugin.file} is not the file that {component_text} of the run came from")


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read ({str(error).splitlines()[0]}); export the run again") from None
    return tensors
