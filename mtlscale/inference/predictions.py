"""Scores, probabilities and labels derived from a network's outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtlscale.config import Task, TaskSuite

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Prediction:
    """Prediction of one task for N samples.

    Attributes:
        task: The task.
        scores: [N, outputs, …] logits, or the predicted numbers of a regression.
        probabilities: The same shape as the scores; None for a regression.
        labels: For classes [N, …] their names if known, else their numbers; for tasks with many labels per sample [N,
            outputs] of 0 and 1; for a regression the scores.
    """

    task: Task
    scores: NDArray[Any]
    probabilities: NDArray[Any] | None
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.scores)

    def to_pandas(self, *, probabilities: bool = False) -> pd.DataFrame:
        """Return a row per sample, with the columns that `mtlscale predict` writes.

        Args:
            probabilities: Add a column for each class, `<task>.p.<class>`.
        """
        import pyarrow as pa

        columns = columns_of(self, self.task.name, f"{self.task.name}.", probabilities=probabilities)
        frame: pd.DataFrame = pa.table(columns).to_pandas()
        return frame

    @property
    def confidence(self) -> NDArray[Any] | None:
        """The probability [N] of each label if a sample has one label that is a class; else None."""
        probabilities: Any = self.probabilities
        if probabilities is None or probabilities.ndim != 2:
            return None
        if self.task.loss != "bce":
            highest: NDArray[Any] = probabilities.max(1)
            return highest
        if self.task.outputs > 1:
            return None
        certainty: NDArray[Any] = abs(probabilities[:, 0] - 0.5) + 0.5
        return certainty


def scaling_of(suite: TaskSuite, task: str) -> tuple[float, float]:
    """Return what was subtracted from a task's targets, and what they were then divided by."""
    mean, deviation = suite.extras.get("target_scaling", {}).get(task, (0.0, 1.0))
    return float(mean), float(deviation)


def in_units(suite: TaskSuite, task: str, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return numbers of a regression in the units of the raw data, if its pipeline noted how it scaled them."""
    mean, deviation = scaling_of(suite, task)
    return numbers if (mean, deviation) == (0.0, 1.0) else numbers * deviation + mean


def prediction_of(suite: TaskSuite, task: Task, scores: Tensor) -> Prediction:
    """Return the prediction of a task from its scores [N, outputs, …] on the host."""
    import numpy as np

    if task.loss in ("cross_entropy", "soft_cross_entropy"):
        codes = scores.argmax(1).numpy()
        has_names = len(task.classes) == task.outputs
        labels = np.asarray(task.classes, dtype=object)[codes] if has_names else codes
        return Prediction(task, scores.numpy(), scores.softmax(1).numpy(), labels)

    if task.loss == "bce":
        positive = (scores > 0).to(torch.int64)
        if task.outputs > 1:
            return Prediction(task, scores.numpy(), scores.sigmoid().numpy(), positive.numpy())
        codes = positive.squeeze(1).numpy()
        labels = np.asarray(task.classes, dtype=object)[codes] if len(task.classes) == 2 else codes
        return Prediction(task, scores.numpy(), scores.sigmoid().numpy(), labels)

    numbers = in_units(suite, task.name, scores.numpy())
    return Prediction(task, numbers, None, numbers.squeeze(1) if task.outputs == 1 else numbers)


def columns_of(prediction: Prediction, label: str, prefix: str, *, probabilities: bool = False) -> dict[str, pa.Array]:
    """Return the columns of a prediction.

    `label` has the labels, as nested lists for maps and multi-label tasks; `<prefix>score` the label's probability, if
    it is a class; with `probabilities`, `<prefix>p.<class>` the probability of each class.
    """
    import pyarrow as pa

    columns = {label: _array(prediction.labels)}
    certainty, class_probabilities = prediction.confidence, prediction.probabilities
    if certainty is not None:
        columns[f"{prefix}score"] = pa.array(certainty)

    if not probabilities or class_probabilities is None:
        return columns
    if class_probabilities.ndim == 2 and class_probabilities.shape[1] > 1:
        names = prediction.task.classes or tuple(map(str, range(class_probabilities.shape[1])))
        return columns | {
            f"{prefix}p.{name}": pa.array(class_probabilities[:, index]) for index, name in enumerate(names)
        }
    return columns | {
        f"{prefix}p": _array(
            class_probabilities.squeeze(1) if class_probabilities.shape[1] == 1 else class_probabilities
        )
    }


def _array(values: Any) -> pa.Array:
    import pyarrow as pa

    return pa.array(values if values.ndim == 1 and values.dtype != object else values.tolist())
