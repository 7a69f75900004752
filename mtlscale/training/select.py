"""Which epoch is chosen, on validation alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mtlscale.metrics import metric_info
from mtlscale.records import Metrics
from mtlscale.spec import TaskSuite


@dataclass
class Selection:
    """The best epoch so far, of the whole network ("") or, where nothing is shared, of every task.

    A score that is undefined (an AUC of one class, a loss that is NaN) counts for nothing: an epoch in which more tasks
    have a score is better than one in which fewer have.
    """

    best_score: dict[str, list[float]] = field(default_factory=dict)  # -> [tasks with a score, score, -loss]
    best_epoch: dict[str, int] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)  # units of mixed metrics, from the first evaluation
    since_best: int = 0  # evaluations

    def choose(self, epoch: int, val: Metrics, suite: TaskSuite, rule: str, independent: bool) -> list[str]:
        """Compare an epoch with the best so far; return what it is better for: "" or, where nothing is shared
        (`independent`), tasks. rule: "metric", "loss" or "last" of the training settings."""
        # Small validation sets tie often: of two epochs with the same score the one with the smaller loss is better.
        pairs = {
            task.name: (self._score(val, task.name, task.metrics[0], suite, rule), -val[task.name]["loss"])
            for task in suite.tasks
        }
        groups = {task: [pair] for task, pair in pairs.items()} if independent else {"": list(pairs.values())}
        improved = []
        for group, members in groups.items():
            value = _value(members)
            if rule == "last" or group not in self.best_score or value > self.best_score[group]:
                self.best_score[group], self.best_epoch[group] = value, epoch
                improved.append(group)
        self.since_best = 0 if improved else self.since_best + 1
        return improved

    def _score(self, val: Metrics, task: str, metric: str, suite: TaskSuite, rule: str) -> float:
        """A task's part of the validation score, larger is better. Where main metrics differ in kind, each is taken
        relative to its size in the first evaluation that has one, so that no unit rules: the mean of these is, up to a
        constant, the mean relative gain over the first evaluation. What can be negative counts from the least it can
        be."""
        if rule == "loss":
            return -val[task]["loss"]
        info, value = metric_info(metric), val[task][metric]
        sign = 1.0 if info.higher_is_better else -1.0
        if len({t.metrics[0] for t in suite.tasks}) == 1 or math.isnan(value):
            return sign * value
        value = sign * (value - info.lowest)
        return value / self.scales.setdefault(task, abs(value) or 1.0)


def _value(pairs: list[tuple[float, float]]) -> list[float]:
    """[tasks with a score, their mean score, the mean of their -loss]; never NaN."""
    there = [pair for pair in pairs if not math.isnan(pair[0])]
    means = [sum(part) / len(there) for part in zip(*there, strict=True)] if there else [-math.inf, -math.inf]
    return [float(len(there)), *(-math.inf if math.isnan(mean) else mean for mean in means)]
