"""A model that was exported, loaded: predictions and metrics, without Ray and MLflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Batch, Samples
from mtlscale.data.readers import placed
from mtlscale.exported import nested
from mtlscale.exported.description import (
    FOUND,
    MODEL,
    TOKENIZER,
    Description,
    read_description,
)
from mtlscale.exported.inputs import Reader
from mtlscale.exported.measure import Tell, as_exported, measure
from mtlscale.exported.network import network
from mtlscale.exported.predictions import Prediction, prediction_of
from mtlscale.records import Metrics
from mtlscale.spec import Task, TaskSuite, UserError, load_plugin, nearest, same_source
from mtlscale.spec.components import component


class ExportedModel:
    """A network in evaluation mode with what turns raw inputs into its own. `load_model` makes one."""

    def __init__(self, folder: Path, description: Description, module: MultiTaskModule, device: torch.device) -> None:
        self.folder, self.description, self.device = folder, description, device
        self.module = module.to(device)
        self.suite: TaskSuite = description.suite
        self.dtype: torch.dtype = getattr(torch, description.spec["training"]["dtype"])
        self.batch_size: int = description.spec["training"]["eval_batch_size"]  # samples that are predicted at a time
        self.reader = Reader(folder, description)

    def __repr__(self) -> str:
        run = self.description.run
        return f"ExportedModel({run.method} on {run.dataset}, seed {run.seed}: {', '.join(self.tasks)})"

    @property
    def spec(self) -> dict[str, Any]:
        """The resolved settings of the run that it comes from."""
        return self.description.spec

    @property
    def tasks(self) -> dict[str, Task]:
        return {task.name: task for task in self.suite.tasks}

    @property
    def metrics(self) -> Metrics:
        """Task -> metric -> value of the run, on the test split."""
        return self.description.metrics["test"]

    def predict(
        self, inputs: Any, task: str | Sequence[str] | None = None, *, batch_size: int | None = None
    ) -> dict[str, Prediction]:
        """Task -> what the network says of each of the inputs, for this task, these, or all.

        inputs: what the network reads [N, *shape] (array or tensor), or raw: texts (of pairs, tuples of two), pictures
        (paths, bytes, Pillow images), a table of features (pandas, pyarrow, mapping of columns); or a mapping of tasks
        to any of these, each with inputs of its own. batch_size: samples at a time; another one may change the scores'
        last digits. `UserError` for inputs of another shape or type, and for tasks that are not there.
        """
        if isinstance(inputs, Mapping) and inputs and set(inputs) <= set(self.tasks):
            return {name: self.predict(its, name, batch_size=batch_size)[name] for name, its in inputs.items()}
        names = self.named(task)
        return self._predict(self.reader.tensor(inputs), names, batch_size or self.batch_size)

    def named(self, task: str | Sequence[str] | None) -> list[str]:
        """The tasks that are meant; `UserError` where they are not there, or where one has to be named."""
        known = list(self.tasks)
        if task is None:
            if self.suite.inputs == "per_task" and len(known) > 1:
                raise UserError(
                    f"each task of {self.suite.name} has inputs of its own; name the task of these, one of: "
                    f"{', '.join(known)}"
                )
            return known
        names = [task] if isinstance(task, str) else list(task)
        for name in names:
            if name not in known:
                raise UserError(f"the model has no task {name!r}: {nearest(str(name), known)}")
        return names

    def evaluate(self, folder: Path | str, split: str = "test", *, tell: Tell | None = None) -> Metrics:
        """Task -> metric -> value on a split of a prepared set, "loss" included, by what training measures with: on
        the set that it was trained on to the last digit what the run's record has.

        That holds with as many threads as the run had (`description.run.threads`); others may change last digits. tell:
        hears of every batch, and of the scores of its tasks.
        """
        data = as_exported(Path(folder), split, self.description, self.reader)
        place: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        return measure(self.module, data, split, batch_size=self.batch_size, tell=tell, **place)

    @torch.inference_mode()
    def _predict(self, inputs: Tensor, names: Sequence[str], size: int) -> dict[str, Prediction]:
        found: dict[str, list[Tensor]] = {name: [] for name in names}
        for part in inputs.split(size):
            for batch in self._as_batches(part, names):
                scores = self.module(batch).predictions
                for name in batch.tasks:
                    found[name].append(scores[name].cpu())
        return {name: prediction_of(self.tasks[name], torch.cat(parts)) for name, parts in found.items()}

    def _as_batches(self, inputs: Tensor, names: Sequence[str]) -> Iterator[Batch]:
        """One of each stream that has any of the tasks, with labels that nobody looks at."""
        nothing = torch.empty(len(inputs), 0)
        for stream, tasks in self.suite.streams.items():
            targets = {name: nothing for name in tasks if name in names}
            if targets:
                samples = placed(Samples(inputs, targets), self.device, self.dtype)
                yield Batch(stream, samples, len(inputs))


def load_model(folder: Path | str, *, device: torch.device | str = "cpu", trust_plugins: bool = False) -> ExportedModel:
    """The model in a folder that `mtlscale export` wrote; needs neither Ray nor MLflow.

    trust_plugins: run the code that the folder brings along, where the model has parts that are not shipped. Raises
    `UserError` for a folder that is damaged, or written by a newer version.
    """
    folder = Path(folder)
    description = read_description(folder)
    _load_plugins(folder, description, trust_plugins)
    suite = description.suite
    state = _tensors(folder / MODEL)
    found = None
    if description.found is not None:
        tensors = _tensors(folder / FOUND) if FOUND in description.files else {}
        found = nested.restored(description.found, tensors)
    module = network(description.spec, suite, description.phase, found, state, folder / TOKENIZER)
    try:
        place = torch.device(device)
        return ExportedModel(folder, description, module, place)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"device {device} cannot be used ({reason}); choose cpu") from None


def _load_plugins(folder: Path, description: Description, trusted: bool) -> None:
    if not description.plugins:
        return
    if not trusted:
        told = "; ".join(f"{plugin.file} ({', '.join(plugin.components)})" for plugin in description.plugins)
        raise UserError(
            f"{folder} brings code of its own: {told}; read it, and pass trust_plugins=True (--trust-plugins) to run it"
        )
    for plugin in description.plugins:
        load_plugin(folder / plugin.file)
        for told in plugin.components:
            kind, _, name = told.partition(" ")
            if not same_source(component(f"{kind}s", name), plugin.source):
                raise UserError(f"{folder / plugin.file} is not the file that {told} of the run came from")


def _tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read ({str(error).splitlines()[0]}); export the run again") from None
    return found
