"""Losses and metrics over a whole split, of one network or of a batch of trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.data import Batch, PreparedData, Workers, slice_for
from mtlscale.data.views import viewed
from mtlscale.metrics import TaskMetrics, measured, pooled, pooled_metrics
from mtlscale.records import Metrics
from mtlscale.spec import Run, Task, TaskSuite
from mtlscale.training.figures import check_evaluation
from mtlscale.training.items import ItemBootstrap
from mtlscale.training.losses import task_loss


class TaskTable:
    """One task's loss and metrics over a split, for every trial."""

    def __init__(self, task: Task, trials: int, device: torch.device, *, by_sums: bool) -> None:
        """by_sums: metrics come from sums over samples (`add_sums`), which many trials compute at once."""
        self.task = task
        self._loss = torch.zeros(2, trials, dtype=torch.float64, device=device)
        self._sums: dict[str, Tensor] = {}
        self._count = torch.zeros(trials, dtype=torch.int64, device=device)
        self._metrics = [] if by_sums else [TaskMetrics(task).to(device) for _ in range(trials)]

    @property
    def by_sums(self) -> bool:
        return not self._metrics

    def add_loss(self, total: Tensor, count: Tensor) -> None:
        """total, count: [trials]."""
        self._loss += torch.stack([total.to(torch.float64), count.to(torch.float64)])

    def add_sums(self, sums: dict[str, Tensor], count: Tensor) -> None:
        """metric -> [trials] over so many samples [trials]."""
        self._sums = {name: total + self._sums.get(name, 0.0) for name, total in sums.items()}
        self._count += count

    def add_predictions(self, predictions: Tensor, target: Tensor) -> None:
        """predictions: [trials, n, outputs, ...]; target: [n, ...]."""
        for metrics, prediction in zip(self._metrics, predictions.unbind(), strict=True):
            metrics.update(prediction, target)

    def results(self, workers: Workers | None = None) -> list[dict[str, float]]:
        """metric -> value for every trial over all workers, "loss" included."""
        totals = (workers or Workers()).sum(self._loss.clone())
        losses = (totals[0] / totals[1]).tolist()
        if self._metrics:
            found = [metrics.compute() for metrics in self._metrics]
        else:
            means = {name: (total / self._count).tolist() for name, total in self._sums.items()}
            trials = range(len(losses))
            found = [pooled_metrics(self.task, {name: column[b] for name, column in means.items()}) for b in trials]
        return [{**values, "loss": loss} for values, loss in zip(found, losses, strict=True)]


def as_asked(data: PreparedData, run: Run) -> PreparedData:
    """The data with the tasks, share, noise and metrics that the run's experiment asks for, and a copy of no sample."""
    data = viewed(data, run.tasks, run.noise, run.share)
    check_evaluation(run.evaluation, data.suite)
    return data if run.metrics is None else replace(data, suite=measured(data.suite, run.metrics))


def tables(suite: TaskSuite, trials: int, device: torch.device) -> list[TaskTable]:
    """An empty table per task for so many trials at once."""
    return [TaskTable(task, trials, device, by_sums=pooled(task)) for task in suite.tasks]


@torch.no_grad()
def evaluate(
    model: MultiTaskModule,
    batches: Iterable[Batch],
    suite: TaskSuite,
    device: torch.device,
    workers: Workers,
    items: ItemBootstrap | None = None,
) -> Metrics:
    """Task -> metric -> value over this worker's batches and those of all others, "loss" included; the same for any
    number of workers. Leaves the network in evaluation mode. items: is told of them all, too."""
    model.eval()
    found = {task.name: TaskTable(task, 1, device, by_sums=False) for task in suite.tasks}
    seen: Counter[str] = Counter()
    for batch in batches:
        outputs = model(batch)
        if items is not None:
            mine = slice_for(torch.arange(batch.total), workers.rank, workers.size)[seen[batch.stream] :]
            weights = items.weights(batch.stream, mine[: len(batch.samples)], device)
            seen[batch.stream] += len(batch.samples)
            for name, target in batch.samples.targets.items():
                items.add(name, outputs.predictions[name].unsqueeze(0), target, weights)
        for name, target in batch.samples.targets.items():
            prediction = outputs.predictions[name]
            found[name].add_predictions(prediction.unsqueeze(0), target)
            total, count = task_loss(found[name].task.loss, prediction, target)
            found[name].add_loss(total.reshape(1), count.reshape(1))
    return {name: table.results(workers)[0] for name, table in found.items()}


def mean_losses(metrics: Metrics) -> dict[str, float]:
    """Task -> mean loss."""
    return {task: found["loss"] for task, found in metrics.items()}
