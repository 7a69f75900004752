"""Bootstrap over the items of a split, of one network or of a batch of trials."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.func import vmap

from mtlscale.config import TaskSuite
from mtlscale.data import Workers
from mtlscale.metrics import item_sums, poisson_weights, read_sums, resampled, sums_per_item, vectorised
from mtlscale.records import ItemErrors
from mtlscale.training.evaluation.kept_predictions import KeptPredictions
from mtlscale.training.seeds import derive_seed

REPLICATES = 100  # a standard error from so many is itself right to 7 %


class ItemBootstrap:
    """Bootstrap replicates of every task's main metric, for every trial.

    Tasks whose main metric is no ratio of sums over items are left out. The predictions themselves are `kept`, if they
    are few.
    """

    def __init__(self, suite: TaskSuite, trials: int, device: torch.device) -> None:
        self._trials = trials
        self.kept = KeptPredictions(suite.tasks)
        self._tasks = {task.name: task for task in suite.tasks if resampled(task)}
        self._whole = len(self._tasks) == len(suite.tasks) and len({task.metrics[0] for task in suite.tasks}) == 1
        self._sums = {
            name: torch.zeros(trials, REPLICATES, sums_per_item(task), dtype=torch.float64, device=device)
            for name, task in self._tasks.items()
        }
        self._items = {name: torch.zeros(1, 1, 1, dtype=torch.float64, device=device) for name in self._tasks}

    def weights(self, stream: str, index: Tensor, device: torch.device) -> Tensor:
        """Return the bootstrap weights [n, replicates] of the items at the indices `index` of a stream."""
        return poisson_weights(derive_seed("items", stream), index.to(device), REPLICATES)

    @torch.no_grad()
    def add(self, name: str, predictions: Tensor, target: Tensor, weights: Tensor) -> None:
        """Add a task's predictions [trials, n, outputs, ...] with their labels [n, ...]."""
        self.kept.add(name, predictions, target)
        task = self._tasks.get(name)
        if task is None or not len(target):
            return
        if vectorised(task):
            shares = vmap(lambda prediction: item_sums(task, prediction, target))(predictions)
        else:
            shares = torch.stack([item_sums(task, prediction, target) for prediction in predictions])
        self._sums[name] += weights.T @ shares
        self._items[name] += len(target)

    def results(self, workers: Workers | None = None) -> list[ItemErrors | None]:
        """Return what every trial's record keeps, over all workers."""
        if not self._sums:
            return [None] * self._trials
        sizes = [sums.shape[-1] for sums in self._sums.values()]
        counts = [items.expand(self._trials, REPLICATES, 1) for items in self._items.values()]
        total = (workers or Workers()).sum(torch.cat([*self._sums.values(), *counts], dim=-1)).cpu()
        *split, items = total.split([*sizes, len(counts)], dim=-1)
        count = int(items.max())
        parts = zip(self._tasks.items(), split, strict=True)
        replicates = {name: read_sums(task, sums) for (name, task), sums in parts}  # task -> [trials, replicates]
        return [
            self._errors({name: task_replicates[trial] for name, task_replicates in replicates.items()}, count)
            for trial in range(self._trials)
        ]

    def _errors(self, found: dict[str, Tensor], count: int) -> ItemErrors:
        errors = {}
        filled = []
        for name, values in found.items():
            defined = values[~values.isnan()]  # a replicate may leave out all of a task's few items
            if len(defined) > 1:
                errors[name] = _short(defined.std().item())
                filled.append(torch.where(values.isnan(), defined.mean(), values))
        means = torch.stack(filled).mean(0).tolist() if self._whole and filled else []
        return ItemErrors(errors=errors, means=[_short(value) for value in means], count=count)


def _short(value: float) -> float:
    """Round to six digits: records of many runs lie in memory and in one file."""
    return float(f"{value:.6g}") if math.isfinite(value) else value
