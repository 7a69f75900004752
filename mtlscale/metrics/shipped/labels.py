"""Metrics of classes and labels. Definitions: docs/methods.md#metrics."""

from __future__ import annotations

from mtlscale.config import MISSING_CLASS, Task
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.contract import Mean, Metric

LABELS: tuple[str, ...] = ("cross_entropy", "soft_cross_entropy", "bce")
CLASSES: tuple[str, ...] = ("cross_entropy", "bce")


class Accuracy(Mean):
    """Right labels among those present."""

    name = "accuracy"
    higher_is_better = True
    losses = LABELS
    unit = "%"

    @staticmethod
    def values(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        if task.loss == "bce":
            return (prediction > 0) == (target > 0.5)
        return prediction.argmax(-1) == (target if task.loss == "cross_entropy" else target.argmax(-1))

    def finish(self, task: Task, mean: float) -> float:
        return 100.0 * mean


class Error(Accuracy):
    """100 − accuracy."""

    name = "error"
    higher_is_better = False

    def finish(self, task: Task, mean: float) -> float:
        return 100.0 * (1.0 - mean)


class SoftError(Error):
    """Samples whose most likely class is not that of the soft label."""

    name = "soft_error"
    losses = ("soft_cross_entropy",)


class CrossEntropy(Mean):
    """Mean over labels present."""

    name = "cross_entropy"
    higher_is_better = False
    losses = LABELS
    unit = "nats"

    def values(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        functional = torch.nn.functional
        if task.loss == "bce":
            truth = target.to(prediction.dtype)
            return functional.binary_cross_entropy_with_logits(prediction, truth, reduction="none")
        if task.loss == "cross_entropy":
            return functional.cross_entropy(prediction, target, reduction="none")
        return -(target * prediction.log_softmax(-1)).sum(-1)


class F1(Metric):
    """Of the positive class where there is one output, else mean over classes in truth or prediction.

    F1 = 2 tp / (2 tp + fp + fn). With several labels it is the mean over them, 0 of a label that never occurs.
    """

    name = "f1"
    higher_is_better = True
    losses = CLASSES
    unit = "%"

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the right, the answered and the true labels of each class."""
        if task.loss == "cross_entropy":
            present = (target != MISSING_CLASS).unsqueeze(-1)
            pair = torch.stack([prediction.argmax(-1), target.clamp(min=0)])
            answers, truth = torch.nn.functional.one_hot(pair, prediction.shape[-1]).bool()
        else:
            present, answers, truth = ~target.isnan(), prediction > 0, target == 1
        return (torch.stack([answers & truth, answers, truth]) & present).sum(1).flatten()

    def finish(self, task: Task, sums: Tensor) -> float:
        right, answered, true = sums.view(3, -1)
        # In single precision, in which published results of this package were computed.
        scores = 2 * right.float() / (answered + true).clamp(min=1).float()
        occurs = ((answered + true) > 0).float() if task.loss == "cross_entropy" else torch.ones_like(scores)
        return 100.0 * float((scores * occurs / occurs.sum().clamp(min=1)).sum())


class BinaryF1(Metric):
    """F1 of the positive (the last) class: 2 TP / (2 TP + FP + FN), 0 without a positive among labels and answers."""

    name = "binary_f1"
    higher_is_better = True
    losses = CLASSES
    unit = "%"
    one_score = True

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        if task.loss == "bce":
            present = ~target.isnan()
            truth, answer = target[present] > 0.5, prediction[present] > 0
        else:
            present = target != MISSING_CLASS
            truth, answer = target[present] == 1, prediction[present].argmax(-1) == 1
        return torch.stack([(truth & answer).sum(), truth.sum() + answer.sum()])

    def finish(self, task: Task, sums: Tensor) -> float:
        hits, positives = sums.tolist()
        return 100.0 * float(2 * hits / positives) if positives else 0.0


class Matthews(Metric):
    """Matthews correlation of labels and answers, 0 where one of them never varies; of labels their mean."""

    name = "matthews"
    higher_is_better = True
    losses = CLASSES
    lowest = -1.0
    highest = 1.0

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        """Return a confusion matrix, of single labels one for each."""
        if task.loss == "cross_entropy":
            present, classes = target != MISSING_CLASS, task.outputs
            cells = target[present] * classes + prediction[present].argmax(-1)
            return torch.bincount(cells, minlength=classes**2)

        present = ~target.isnan()
        table = torch.arange(task.outputs, device=target.device).expand_as(target)
        cells = table[present] * 4 + (target[present] > 0.5).long() * 2 + (prediction[present] > 0).long()
        return torch.bincount(cells, minlength=4 * task.outputs)

    def finish(self, task: Task, sums: Tensor) -> float:
        classes = task.outputs if task.loss == "cross_entropy" else 2
        tables = sums.reshape(-1, classes, classes).double()
        coefficients = [_matthews(table) for table in tables if table.sum() > 0]
        return sum(coefficients) / len(coefficients)


def _matthews(table: Tensor) -> float:
    """Return the Matthews correlation of a confusion matrix; 0 if labels or answers are all of one class."""
    total, right = table.sum(), table.diagonal().sum()
    truth, answers = table.sum(1), table.sum(0)
    spread = (total**2 - (truth**2).sum()) * (total**2 - (answers**2).sum())
    return ((right * total - (truth * answers).sum()) / spread.sqrt()).item() if spread > 0 else 0.0
