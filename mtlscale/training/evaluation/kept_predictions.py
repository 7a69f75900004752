"""Predictions of a run on test, kept so that another metric or an ensemble needs no training."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.records import write_atomically

FILE = "test_predictions.safetensors"
MOST_NUMBERS = 1 << 18  # of a run's predictions and labels; those of larger suites are not kept
_RARE = 1e-12


@dataclass(frozen=True)
class TaskPredictions:
    """What a run predicts on test for a task, with the labels: of the samples that have one, in the split's order."""

    task: Task
    predictions: Tensor  # [n, outputs, …] logits or numbers
    labels: Tensor  # [n, …]


class KeptPredictions:
    """The predictions of one or many trials on a split, as long as they are few; none of tokens, cut as batches are."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = {task.name: task for task in tasks}
        self._parts: dict[str, list[tuple[Tensor, Tensor]]] = {task.name: [] for task in tasks if task.per == "sample"}
        self._numbers = 0  # of a trial

    def add(self, name: str, predictions: Tensor, target: Tensor) -> None:
        """Add a task's predictions [trials, n, outputs, …] with their labels [n, …]."""
        self._numbers += predictions[0].numel() + target.numel()
        if self._numbers > MOST_NUMBERS:
            self._parts.clear()
        if name in self._parts:
            self._parts[name].append((predictions.float().cpu(), target.cpu()))

    def of_trial(self, trial: int) -> dict[str, TaskPredictions]:
        """Return the predictions of a trial by task; none where they were too many."""
        kept = {}
        for name, parts in self._parts.items():
            if parts:
                predictions = torch.cat([batch[trial] for batch, _ in parts])
                labels = torch.cat([target for _, target in parts])
                missing = labels.isnan() if labels.is_floating_point() else labels == MISSING_CLASS
                has_label = ~missing.flatten(1).all(1) if labels.ndim > 1 else ~missing
                kept[name] = TaskPredictions(self._tasks[name], predictions[has_label], labels[has_label])
        return kept


def write_predictions(folder: Path, kept: Mapping[str, TaskPredictions]) -> None:
    """Write predictions, labels and the definitions of the tasks into a run's folder."""
    from safetensors.torch import save

    tensors = {f"predictions.{name}": entry.predictions.contiguous() for name, entry in kept.items()}
    tensors |= {f"labels.{name}": entry.labels.contiguous() for name, entry in kept.items()}
    tasks = json.dumps([dataclasses.asdict(entry.task) for entry in kept.values()])
    write_atomically(folder / FILE, save(tensors, {"tasks": tasks}))


def read_predictions(folder: Path) -> dict[str, TaskPredictions]:
    """Return what a run's folder has of its predictions on test, by task; nothing where they were not kept."""
    from safetensors import safe_open

    path = folder / FILE
    if not path.is_file():
        return {}
    opened: Any = safe_open  # which has no types
    with opened(path, "pt") as file:
        entries: list[dict[str, Any]] = json.loads(file.metadata()["tasks"])
        tasks = [Task(**{**entry, **{key: tuple(entry[key]) for key in ("metrics", "classes")}}) for entry in entries]
        return {
            task.name: TaskPredictions(
                task, file.get_tensor(f"predictions.{task.name}"), file.get_tensor(f"labels.{task.name}")
            )
            for task in tasks
        }


def mean_prediction(task: Task, predictions: Sequence[Tensor]) -> Tensor:
    """Return the ensemble's prediction: the mean of probabilities, as logits, or of numbers."""
    stacked = torch.stack([prediction.double() for prediction in predictions])
    if task.loss in ("cross_entropy", "soft_cross_entropy"):
        return stacked.softmax(2).mean(0).clamp(min=_RARE).log()
    if task.loss == "bce":
        return stacked.sigmoid().mean(0).logit(_RARE)
    return stacked.mean(0)
