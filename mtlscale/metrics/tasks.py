"""Metrics of a task over the batches of a split.

What is pooled are sums, counts and scores over the whole split (never means of means), in float64, so a metric does not
depend on the batch size. Workers exchange it, so a split may be sharded. Every worker has to call `compute`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mtlscale.config import Task, UserError, plugin_file
from mtlscale.metrics.accumulators import over_workers
from mtlscale.metrics.contract import Mean, averaged_values
from mtlscale.metrics.names import check_task, metric_named
from mtlscale.metrics.rows import blank_batch, filled, present_rows, rows_of


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
        metrics = [metric_named(name) for name in task.metrics]
        self._metrics = [metric for metric in metrics if not metric.simulated]
        self._means = Means(task, [metric for metric in self._metrics if isinstance(metric, Mean)])
        self._others = [(metric, metric.accumulator(task)) for metric in self._metrics if not isinstance(metric, Mean)]

    def to(self, device: torch.device | str) -> TaskMetrics:
        """Keep the states on a device: the one that the worker group's backend sends from (NCCL: the worker's GPU)."""
        self._means.to(device)
        for _, accumulator in self._others:
            accumulator.to(device)
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

        rows = rows_of(self.task, prediction, target)
        for metric, accumulator in self._others:
            batch = (prediction, target) if metric.of_tokens else rows
            accumulator.update(*batch, *([groups] if metric.grouped else []))
        self._means.update(*rows)

    def compute(self) -> dict[str, float]:
        """Return metric -> value over all samples that all workers have seen since their last `reset`.

        Raises:
            UserError: If a user's metric is infinite.
        """
        if not self._means.updated:
            # A worker without a batch takes part in the exchange with empty states of the right types.
            prediction, target = blank_batch(self.task, 0, self._means.sums.device)
            self.update(prediction, target, prediction[:, 0])

        labels, means = self._means.compute()
        pooled: dict[str, Any] = {**means, **{metric.name: state.compute() for metric, state in self._others}}
        values = {}
        for metric in self._metrics:
            value = float(metric.finish(self.task, pooled[metric.name])) if labels else math.nan
            if math.isinf(value) and (file := plugin_file(type(metric))):
                where = f"{file}: metric {metric.name} of task {self.task.name}"
                raise UserError(f"{where} is {value}; return a finite number, or NaN where it is not defined")
            values[metric.name] = value
        return values

    def reset(self) -> None:
        self._means.reset()
        for _, accumulator in self._others:
            accumulator.reset()


class Means:
    """Means over all labels of a split, exchanged between workers as one vector."""

    def __init__(self, task: Task, metrics: list[Mean]) -> None:
        self.task = task
        self.groups: dict[Callable[[Task, Tensor], Tensor], list[Mean]] = {Mean.present: []}  # mask -> metrics over it
        for metric in metrics:
            self.groups.setdefault(metric.present, []).append(metric)
        self.sums = torch.zeros(len(metrics) + len(self.groups), dtype=torch.float64)  # of a group's metrics, its count
        self.updated = False

    def to(self, device: torch.device | str) -> None:
        self.sums = self.sums.to(device)

    def reset(self) -> None:
        self.sums = torch.zeros_like(self.sums)
        self.updated = False

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Add the rows of a batch."""
        added = []
        for present_of, metrics in self.groups.items():
            present = present_of(self.task, target)
            values = averaged_values(metrics, self.task, prediction[present], target[present])
            added += [*(value.sum(dtype=torch.float64) for value in values.values()), present.sum(dtype=torch.float64)]
        self.sums += torch.stack(added)
        self.updated = True

    def compute(self) -> tuple[int, dict[str, float]]:
        """Return the number of labels, and metric -> mean (NaN without a label)."""
        groups = list(self.groups.values())
        parts = over_workers(self.sums).split([len(metrics) + 1 for metrics in groups])
        means: dict[str, float] = {}
        for metrics, part in zip(groups, parts, strict=True):
            names = [metric.name for metric in metrics]
            means.update(zip(names, (part[:-1] / part[-1]).tolist(), strict=True))
        return int(parts[0][-1]), means


def pooled(task: Task) -> bool:
    """Return whether all metrics of the task are means over labels, as `pooled_sums` adds them up."""
    metrics = map(metric_named, task.metrics)
    return all(isinstance(metric, Mean) and metric.present is Mean.present for metric in metrics)


def pooled_sums(task: Task, prediction: Tensor, target: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Return metric -> the sum of its values (float64) over the labels of a batch, and the number of labels.

    This is `TaskMetrics` without state, for predictions under vmap.
    """
    prediction, target = rows_of(task, prediction, target)
    present = present_rows(task, target)
    metrics = [metric for metric in map(metric_named, task.metrics) if isinstance(metric, Mean)]
    values = averaged_values(metrics, task, prediction, filled(target, present))
    sums = {name: torch.where(present, value, 0).sum(dtype=torch.float64) for name, value in values.items()}
    return sums, present.sum()


def pooled_metrics(task: Task, means: dict[str, float]) -> dict[str, float]:
    """Return metric -> value, from metric -> mean over labels."""
    return {name: metric_named(name).finish(task, mean) for name, mean in means.items()}
