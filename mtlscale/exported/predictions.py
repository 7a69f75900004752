"""From what a network says to scores, probabilities and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from mtlscale.spec import Task

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Prediction:
    """What a network says of one task, of N samples.

    scores [N, outputs, …]: logits, or the numbers themselves of a regression; probabilities: of the same shape, None
    of a regression; labels: of classes [N, …] their names where these are known, else their numbers, of tasks with
    many labels to a sample [N, outputs] of 0 and 1, of a regression the scores.
    """

    task: Task
    scores: NDArray[Any]
    probabilities: NDArray[Any] | None
    labels: NDArray[Any]

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def confidence(self) -> NDArray[Any] | None:
        """[N]: the probability of each label, where a sample has one that is a class; else None."""
        found: Any = self.probabilities
        if found is None or found.ndim != 2:
            return None
        if self.task.loss != "bce":
            best: NDArray[Any] = found.max(1)
            return best
        if self.task.outputs > 1:
            return None
        sure: NDArray[Any] = abs(found[:, 0] - 0.5) + 0.5
        return sure


def prediction_of(task: Task, scores: Tensor) -> Prediction:
    """scores: [N, outputs, …] on the host."""
    import numpy as np

    if task.loss in ("cross_entropy", "soft_cross_entropy"):
        codes = scores.argmax(1).numpy()
        known = len(task.classes) == task.outputs
        labels = np.asarray(task.classes, dtype=object)[codes] if known else codes
        return Prediction(task, scores.numpy(), scores.softmax(1).numpy(), labels)
    if task.loss == "bce":
        yes = (scores > 0).to(torch.int64)
        if task.outputs > 1:
            return Prediction(task, scores.numpy(), scores.sigmoid().numpy(), yes.numpy())
        codes = yes.squeeze(1).numpy()
        labels = np.asarray(task.classes, dtype=object)[codes] if len(task.classes) == 2 else codes
        return Prediction(task, scores.numpy(), scores.sigmoid().numpy(), labels)
    numbers = scores.numpy()
    return Prediction(task, numbers, None, numbers.squeeze(1) if task.outputs == 1 else numbers)
