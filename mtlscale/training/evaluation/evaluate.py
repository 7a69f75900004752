"""The evaluation loop: losses and metrics over a whole split, of one network or of a batch of trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from mtlscale.architectures import MultiTaskModule
from mtlscale.config import Run, Task, TaskSuite
from mtlscale.data import Batch, PreparedData, Workers, slice_for
from mtlscale.data.readers.views import viewed
from mtlscale.metrics import TaskMetrics, measured, pooled, pooled_metrics
from mtlscale.records import Metrics
from mtlscale.training.evaluation.item_bootstrap import ItemBootstrap
from mtlscale.training.evaluation.robustness import check_evaluation
from mtlscale.training.losses import task_loss


class TaskTable:
    """Loss and metrics of one task over a split, for every trial."""

    def __init__(self, task: Task, trials: int, device: torch.device, *, by_sums: bool) -> None:
        """Start an empty table.

        With `by_sums`, metrics come from sums over samples (`add_sums`), which many trials compute at once.
        """
        self.task = task
        self._loss = torch.zeros(2, trials, dtype=torch.float64, device=device)
        self._sums: dict[str, Tensor] = {}
        self._count = torch.zeros(trials, dtype=torch.int64, device=device)
        self._metrics = [] if by_sums else [TaskMetrics(task).to(device) for _ in range(trials)]

    @property
    def by_sums(self) -> bool:
        return not self._metrics

    def add_loss(self, total: Tensor, count: Tensor) -> None:
        """Add sums of losses and their counts, [trials] each."""
        self._loss += torch.stack([total.to(torch.float64), count.to(torch.float64)])

    def add_sums(self, sums: dict[str, Tensor], count: Tensor) -> None:
        """Add metric -> [trials], the sums over `count` [trials] samples."""
        self._sums = {name: total + self._sums.get(name, 0.0) for name, total in sums.items()}
        self._count += count

    def add_predictions(self, predictions: Tensor, target: Tensor, inputs: Tensor) -> None:
        """Add predictions [trials, n, outputs, ...] for the targets [n, ...] and the inputs [n, ...]."""
        groups = None if self.task.group is None else inputs[:, self.task.group]
        for metrics, prediction in zip(self._metrics, predictions.unbind(), strict=True):
            metrics.update(prediction, target, groups)

    def results(self, workers: Workers | None = None) -> list[dict[str, float]]:
        """Return metric -> value for every trial over all workers, "loss" included."""
        totals = (workers or Workers()).sum(self._loss.clone())
        losses = (totals[0] / totals[1]).tolist()
        if self._metrics:
            metric_values = [metrics.compute() for metrics in self._metrics]
        else:
            means = {name: (total / self._count).tolist() for name, total in self._sums.items()}
            trials = range(len(losses))
            metric_values = [
                pooled_metrics(self.task, {name: column[b] for name, column in means.items()}) for b in trials
            ]
        return [{**values, "loss": loss} for values, loss in zip(metric_values, losses, strict=True)]


def as_asked(data: PreparedData, run: Run) -> PreparedData:
    """Return the data with the tasks, share, noise and metrics that the run's experiment asks for; copy no sample."""
    data = viewed(data, run.tasks, run.noise, run.share)
    check_evaluation(run.evaluation, data.suite)
    return data if run.metrics is None else replace(data, suite=measured(data.suite, run.metrics))


def tables(suite: TaskSuite, trials: int, device: torch.device) -> list[TaskTable]:
    """Return an empty table per task for `trials` trials at once."""
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
    """Return task -> metric -> value over the batches of all workers, "loss" included.

    The result is the same for any number of workers. The network is left in evaluation mode. `items` gets every
    prediction, too.
    """
    model.eval()
    task_tables = {task.name: TaskTable(task, 1, device, by_sums=False) for task in suite.tasks}
    samples_seen: Counter[str] = Counter()

    for batch in batches:
        outputs = model(batch)
        if items is not None:
            worker_indices = slice_for(torch.arange(batch.total), workers.rank, workers.size)[
                samples_seen[batch.stream] :
            ]
            weights = items.weights(batch.stream, worker_indices[: len(batch.samples)], device)
            samples_seen[batch.stream] += len(batch.samples)
            for name, target in batch.samples.targets.items():
                items.add(name, outputs.predictions[name].unsqueeze(0), target, weights)

        for name, target in batch.samples.targets.items():
            prediction = outputs.predictions[name]
            task_tables[name].add_predictions(prediction.unsqueeze(0), target, batch.inputs)
            total, count = task_loss(task_tables[name].task.loss, prediction, target)
            task_tables[name].add_loss(total.reshape(1), count.reshape(1))

    return {name: table.results(workers)[0] for name, table in task_tables.items()}


def mean_losses(metrics: Metrics) -> dict[str, float]:
    """Return task -> mean loss."""
    return {task: values["loss"] for task, values in metrics.items()}
