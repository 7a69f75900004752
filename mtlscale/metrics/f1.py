"""Accumulators of F1 on torchmetrics, for classes, one label and several labels."""

from __future__ import annotations

from torch import Tensor

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.metrics.accumulators import Accumulator
from mtlscale.torchvision_ops import declare

declare()  # torchmetrics imports torchvision

from torchmetrics.classification import BinaryF1Score, MulticlassF1Score, MultilabelF1Score  # noqa: E402


def f1_accumulator(task: Task) -> Accumulator:
    """Return the accumulator of a task's F1: mean over classes, of the positive class, or mean over labels."""
    if task.loss == "cross_entropy":
        return MulticlassF1(task)
    return BinaryF1() if task.outputs == 1 else MultilabelF1(task)


class MulticlassF1(MulticlassF1Score):
    """Mean F1 over classes that occur in truth or prediction; fed with logits [B, classes] and classes [B]."""

    def __init__(self, task: Task) -> None:
        super().__init__(num_classes=task.outputs, average="macro", validate_args=False)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        present = target != MISSING_CLASS
        if present.any():  # torchmetrics takes no empty batch
            super().update(prediction[present].argmax(-1), target[present])


class BinaryF1(BinaryF1Score):
    """F1 of the positive class; fed with logits [B, 1] and 0, 1 or NaN [B, 1]."""

    def __init__(self) -> None:
        super().__init__(validate_args=False)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        present = ~target.isnan()
        if present.any():
            super().update((prediction[present] > 0).int(), target[present].int())


class MultilabelF1(MultilabelF1Score):
    """Mean F1 over labels; fed with logits [B, labels] and 0, 1 or NaN [B, labels]."""

    def __init__(self, task: Task) -> None:
        super().__init__(num_labels=task.outputs, average="macro", ignore_index=MISSING_CLASS, validate_args=False)

    def update(self, prediction: Tensor, target: Tensor) -> None:
        if len(target):
            super().update((prediction > 0).int(), target.nan_to_num(nan=MISSING_CLASS).int())
