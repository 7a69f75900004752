"""Accumulators of a task's metrics over the batches of a split.

States are sums and counts over the whole split (never means of means), in float64, so a metric does not depend on the
batch size; they are added up over workers, so a split may be sharded. Every worker has to call `compute`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mtlscale.config import MISSING_CLASS, Task, component
from mtlscale.metrics.accumulators import Accumulator, of_workers
from mtlscale.metrics.correlation import Matthews, Pearson, PositiveF1
from mtlscale.metrics.dense import WITHIN, Angles, Confusion, DepthErrors, MaxF
from mtlscale.metrics.entities import Entities
from mtlscale.metrics.f1 import F1
from mtlscale.metrics.names import METRICS, check_task, simulated
from mtlscale.metrics.ranking import Aupr, Auroc, Ndcg, Spearman
from mtlscale.metrics.recommenders import CalibrationError, GroupedAuroc


def task_metrics(task: Task) -> TaskMetrics:
    """Return an accumulator of all the task's metrics over batches and, under torch.distributed, over workers.

    Raises:
        UserError: If a metric is not defined for the task.
    """
    check_task(task)
    return TaskMetrics(task)


class TaskMetrics:
    """Accumulator of all metrics of one task: `update` with every batch, then `compute`, then `reset`.

    A metric without a single label in the split is NaN. Metrics measured by episodes are left out.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self._names = tuple(name for name in task.metrics if name not in simulated(task))
        statistics = dict.fromkeys(_POOLED[name][0] for name in self._names if name in _POOLED)
        self._means = PooledMeans(tuple(statistics))
        keys = dict.fromkeys(_read_from(name)[0] for name in self._names if name not in _POOLED)
        self._others = {key: _accumulator(key, task) for key in keys}

    def to(self, device: torch.device | str) -> TaskMetrics:
        """Keep the states on a device: the one that the worker group's backend sends from (NCCL: the worker's GPU)."""
        self._means.to(device)
        for metric in self._others.values():
            metric.to(device)
        return self

    @torch.no_grad()
    def update(self, prediction: Tensor, target: Tensor, groups: Tensor | None = None) -> None:
        """Add a batch.

        Missing labels (`MISSING_CLASS`, NaN) are left out; a soft label is missing as a whole.

        Args:
            prediction: [B, outputs, ...] logits or numbers.
            target: [B, ...] classes, or floats of the prediction's size.
            groups: The group of each sample [B], where the task has groups.
        """
        if prediction.device != self._means.sums.device:
            self.to(prediction.device)

        unflattened = prediction, target
        prediction, target = rows_of(self.task, prediction, target)
        for metric in self._others.values():
            if isinstance(metric, GroupedAuroc):
                metric.update(prediction, target, groups)
            else:
                metric.update(*(unflattened if isinstance(metric, Entities) else (prediction, target)))

        present = present_rows(self.task, target)
        prediction, target = prediction[present], target[present]
        values = [_STATISTICS[name](self.task.loss, prediction, target) for name in self._means.names]
        self._means.update(values, len(target))

    def compute(self) -> dict[str, float]:
        """Return metric -> value over all samples that all workers have seen since their last `reset`."""
        if not self._means.updated:
            # A worker without a batch takes part in the exchange with empty states of the right types.
            prediction, target = _empty_batch(self.task, self._means.sums.device)
            self.update(prediction, target, prediction[:, 0])

        count, means = self._means.compute()
        computed = {key: metric.compute() for key, metric in self._others.items()}

        values = {}
        for name in self._names:
            if name in _POOLED:
                statistic, read = _POOLED[name]
                values[name] = read(means[statistic])
            else:
                key, read = _read_from(name)
                value = float(read(computed[key]))
                values[name] = value if count else math.nan

        return values

    def reset(self) -> None:
        self._means.reset()
        for metric in self._others.values():
            metric.reset()


def pooled(task: Task) -> bool:
    """Return whether all metrics of the task are means over labels, as `pooled_sums` adds them up."""
    return all(name in _POOLED for name in task.metrics)


def pooled_sums(task: Task, prediction: Tensor, target: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return statistic -> its sum (float64) over the labels of a batch, and the number of labels.

    This is `TaskMetrics` without state, for predictions under vmap.
    """
    prediction, target = rows_of(task, prediction, target)
    present = present_rows(task, target)
    filled = torch.where(present if target.ndim == present.ndim else present.unsqueeze(-1), target, 0)
    sums = {}
    for statistic in dict.fromkeys(_POOLED[name][0] for name in task.metrics):
        values = _STATISTICS[statistic](task.loss, prediction, filled)
        sums[statistic] = torch.where(present, values, 0).sum(dtype=torch.float64)
    return sums, present.sum()


def pooled_metrics(task: Task, means: dict[str, float]) -> dict[str, float]:
    """Return metric -> value, from statistic -> mean over labels."""
    return {name: _POOLED[name][1](means[_POOLED[name][0]]) for name in task.metrics}


def values_of(task: Task, metric: str, prediction: Tensor, target: Tensor) -> Tensor:
    """Return the values whose mean a pooled metric is, for rows (or their entries) as `rows_of` gives them."""
    return _STATISTICS[_POOLED[metric][0]](task.loss, prediction, target)


def read_pooled(metric: str) -> Callable[[float], float] | None:
    """Return the function from the mean of its values to a metric; None if the metric is no such mean."""
    return _POOLED[metric][1] if metric in _POOLED else None


class PooledMeans:
    """Means of several statistics over all labels of a split, exchanged between workers as one vector."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.sums = torch.zeros(len(names) + 1, dtype=torch.float64)  # of each statistic; the number of labels
        self.updated = False

    def to(self, device: torch.device | str) -> None:
        self.sums = self.sums.to(device)

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)
        self.updated = False

    def update(self, values: list[Tensor], count: int) -> None:
        """Add the values of a batch.

        Args:
            values: [count] for each name.
            count: The number of labels.
        """
        if values:
            self.sums[:-1] += torch.stack([value.sum(dtype=torch.float64) for value in values])
        self.sums[-1] += count
        self.updated = True

    def compute(self) -> tuple[int, dict[str, float]]:
        """Return the number of labels, and name -> mean (NaN without a label)."""
        sums = torch.stack(of_workers(self.sums)).sum(0)
        return int(sums[-1]), dict(zip(self.names, (sums[:-1] / sums[-1]).tolist(), strict=True))


# key -> constructor of an accumulator, which is fed with `rows_of`
_ACCUMULATORS: dict[str, Callable[[Task], Accumulator]] = {
    "f1": F1,
    "auroc": Auroc,
    "gauroc": GroupedAuroc,
    "ece": CalibrationError,
    "aupr": Aupr,
    "binary_f1": PositiveF1,
    "matthews": Matthews,
    "ndcg": Ndcg,
    "pearson": Pearson,
    "spearman": Spearman,
    "confusion": Confusion,
    "depth": DepthErrors,
    "angles": Angles,
    "max_f": MaxF,
    "entities": Entities,
}

# metric -> the accumulator with several values that it is read from, and the reading function; rates are fractions
_OTHERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "miou": ("confusion", itemgetter("miou")),
    "abs_err": ("depth", itemgetter("abs")),
    "rel_err": ("depth", itemgetter("rel")),
    "max_f": ("max_f", itemgetter("f")),
    "entity_f1": ("entities", itemgetter("f1")),
    "angle_mean": ("angles", itemgetter("mean")),
    "angle_median": ("angles", itemgetter("median")),
    "angle_rmse": ("angles", itemgetter("rmse")),
    **{f"within_{bound:g}": ("angles", itemgetter(str(bound))) for bound in WITHIN},
}


def _accumulator(key: str, task: Task) -> Accumulator:
    if key in _ACCUMULATORS:
        return _ACCUMULATORS[key](task)
    accumulator: Accumulator = component("metrics", key)().accumulator(task)
    return accumulator


def _read_from(metric: str) -> tuple[str, Callable[[Any], float]]:
    """Return a metric's accumulator and its reading function; plugins give values in the metric's own unit."""
    if metric not in METRICS:
        return metric, float
    key, read = _OTHERS.get(metric, (metric, float))
    scale = 100.0 if METRICS[metric].unit == "%" else 1.0
    return key, lambda found: scale * float(read(found))


# metric -> the pooled statistic it is computed from, and the function of its mean
_POOLED: dict[str, tuple[str, Callable[[float], float]]] = {
    "accuracy": ("correct", lambda mean: 100.0 * mean),
    "pixel_accuracy": ("correct", lambda mean: 100.0 * mean),
    "error": ("correct", lambda mean: 100.0 * (1.0 - mean)),
    "pixel_error": ("correct", lambda mean: 100.0 * (1.0 - mean)),
    "soft_error": ("correct", lambda mean: 100.0 * (1.0 - mean)),
    "cross_entropy": ("nats", lambda mean: mean),
    "mse": ("squared", lambda mean: mean),
    "rmse": ("squared", math.sqrt),
    "mae": ("absolute", lambda mean: mean),
    "welsch": ("welsch", lambda mean: mean),
}


def _correct(loss: str, prediction: Tensor, target: Tensor) -> Tensor:
    if loss == "bce":
        return (prediction > 0) == (target > 0.5)
    return prediction.argmax(-1) == (target if loss == "cross_entropy" else target.argmax(-1))


def _nats(loss: str, prediction: Tensor, target: Tensor) -> Tensor:
    if loss == "bce":
        return functional.binary_cross_entropy_with_logits(prediction, target.to(prediction.dtype), reduction="none")
    if loss == "cross_entropy":
        return functional.cross_entropy(prediction, target, reduction="none")
    return -(target * prediction.log_softmax(-1)).sum(-1)


# pooled statistic -> its values [n] from the loss and the present labels: prediction [n, classes] or [n], target alike
_STATISTICS: dict[str, Callable[[str, Tensor, Tensor], Tensor]] = {
    "correct": _correct,
    "nats": _nats,
    "squared": lambda loss, prediction, target: (prediction - target) ** 2,
    "welsch": lambda loss, prediction, target: -torch.expm1(-((prediction - target) ** 2).sum(-1)),
    "absolute": lambda loss, prediction, target: (prediction - target).abs(),
}


def rows_of(task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return one row per sample (or pixel): prediction [n, outputs] with classes [n], or with floats [n, outputs].

    Floats are NaN where absent, and in the unit of metrics (`Task.scale`). Half precision becomes float32.
    """
    if prediction.dtype in (torch.float16, torch.bfloat16):
        prediction = prediction.float()

    if task.loss == "cross_entropy":
        return prediction.movedim(1, -1).reshape(-1, task.outputs), target.reshape(-1).long()

    if not target.is_floating_point():
        target = torch.where(target == MISSING_CLASS, math.nan, target.to(prediction.dtype))
    if prediction.numel() != target.numel():
        raise ValueError(
            f"task {task.name!r}: prediction {list(prediction.shape)} and target {list(target.shape)} differ in size"
        )

    if target.shape == prediction.shape and target.ndim > 2:
        prediction, target = prediction.movedim(1, -1), target.movedim(1, -1)
    if task.scale != 1.0:
        prediction, target = prediction * task.scale, target * task.scale
    return prediction.reshape(-1, task.outputs), target.reshape(-1, task.outputs)


def present_rows(task: Task, target: Tensor) -> Tensor:
    """Return the mask of the rows, or of the single entries, whose label is present."""
    if task.loss == "cross_entropy":
        return target != MISSING_CLASS
    if task.loss in ("soft_cross_entropy", "cosine", "welsch"):  # of several numbers, present or missing as a whole
        return ~target.isnan().any(-1)
    return ~target.isnan()


def _empty_batch(task: Task, device: torch.device) -> tuple[Tensor, Tensor]:
    prediction = torch.zeros(0, task.outputs, device=device)
    if task.loss == "cross_entropy":
        return prediction, torch.zeros(0, dtype=torch.int64, device=device)
    return prediction, prediction
