"""Measurement of predictions by labels that stand in the predicted file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mtlscale.config import MISSING_CLASS, Task, TaskSuite
from mtlscale.data.format.categories import as_text
from mtlscale.inference.predictions import Prediction, scaling_of
from mtlscale.metrics import TaskMetrics
from mtlscale.records import Metrics

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class LabelMeter:
    """Accumulator of the metrics of tasks whose labels stand in a table, in a column named as the task.

    Attributes:
        suite: The tasks.
        counts: Task -> number of labels seen.
    """

    suite: TaskSuite
    counts: dict[str, int] = field(default_factory=dict)
    _metrics: dict[str, TaskMetrics] = field(default_factory=dict)

    def add(self, task: Task, table: pa.Table, positions: list[int], prediction: Prediction) -> None:
        """Add the rows of a table that were predicted, where it has labels of the task."""
        if task.name not in table.column_names or prediction.scores.ndim > 2 or task.group is not None:
            return
        cells = table[task.name].take(positions).to_pylist()
        target = self._target(task, cells)
        if target is None:
            return

        mean, deviation = scaling_of(self.suite, task.name)
        scores = prediction.scores if task.loss in _CLASSES else (prediction.scores - mean) / deviation
        if task.name not in self._metrics:
            self._metrics[task.name] = TaskMetrics(task)
        self._metrics[task.name].update(torch.from_numpy(np.asarray(scores)), target)
        self.counts[task.name] = self.counts.get(task.name, 0) + sum(cell is not None for cell in cells)

    def compute(self) -> Metrics:
        """Return task -> metric -> value, of the tasks with a label."""
        return {name: metrics.compute() for name, metrics in self._metrics.items() if self.counts[name]}

    def _target(self, task: Task, cells: list[Any]) -> torch.Tensor | None:
        """Return labels as the network's targets, None where they are of another kind."""
        if task.loss in _CLASSES:
            names = list(task.classes) or list(map(str, range(task.outputs)))
            if task.loss == "soft_cross_entropy" or (task.loss == "bce" and (task.outputs > 1 or len(names) != 2)):
                return None
            codes = {name: code for code, name in enumerate(names)}
            labels = [MISSING_CLASS if cell is None else codes.get(as_text(cell), MISSING_CLASS) for cell in cells]
            if task.loss == "cross_entropy":
                return torch.tensor(labels)
            return torch.tensor([[float("nan") if code == MISSING_CLASS else float(code)] for code in labels])

        if task.outputs != 1 or not all(cell is None or isinstance(cell, int | float) for cell in cells):
            return None
        mean, deviation = scaling_of(self.suite, task.name)
        numbers = np.array([np.nan if cell is None else cell for cell in cells], dtype=float)
        return torch.from_numpy(((numbers - mean) / deviation)[:, None].astype(np.float32))


_CLASSES = ("cross_entropy", "soft_cross_entropy", "bce")
