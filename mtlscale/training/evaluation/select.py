"""Choice of the best epoch, on validation alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from mtlscale.config import TaskSuite
from mtlscale.metrics import metric_named
from mtlscale.records import Metrics, beats


@dataclass
class Selection:
    """Best epoch so far, of the whole network ("") or, where nothing is shared, of every task.

    A score that is undefined (an AUC of one class, a loss that is NaN) counts for nothing: an epoch in which more tasks
    have a score is better than one in which fewer have. Of epochs that are equal within rounding the first counts.
    """

    best_score: dict[str, list[float]] = field(default_factory=dict)  # -> [tasks with a score, score, -loss]
    best_epoch: dict[str, int] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)  # units of mixed metrics, from the first evaluation
    since_best: int = 0  # evaluations since the last improvement

    def choose(self, epoch: int, val: Metrics, suite: TaskSuite, rule: str, independent: bool) -> list[str]:
        """Compare an epoch with the best so far and return the groups that it is better for.

        They are "" for the whole network or, where nothing is shared (`independent`), tasks. `rule` is "metric", "loss"
        or "last" of the training settings.
        """
        # Small validation sets tie often: of two epochs with the same score the one with the smaller loss is better.
        pairs = {
            task.name: (self._score(val, task.name, task.metrics[0], suite, rule), -val[task.name]["loss"])
            for task in suite.tasks
        }
        groups = {task: [pair] for task, pair in pairs.items()} if independent else {"": list(pairs.values())}

        improved = []
        for group, members in groups.items():
            value = _value(members)
            if rule == "last" or group not in self.best_score or beats(value, self.best_score[group]):
                self.best_score[group], self.best_epoch[group] = value, epoch
                improved.append(group)

        self.since_best = 0 if improved else self.since_best + 1
        return improved

    def _score(self, val: Metrics, task: str, metric: str, suite: TaskSuite, rule: str) -> float:
        """Return a task's part of the validation score; larger is better."""
        if rule == "loss":
            return -val[task]["loss"]

        info, value = metric_named(metric), val[task][metric]
        sign = 1.0 if info.higher_is_better else -1.0
        if len({(t.metrics[0], t.scale) for t in suite.tasks}) == 1 or math.isnan(value):
            return sign * value
        # Relative to the first evaluation that has a value, so that no unit rules: up to a constant, the mean of these
        # is the mean relative gain. A metric that can be negative counts from its least possible value.
        value = sign * (value - info.lowest)
        return value / self.scales.setdefault(task, abs(value) or 1.0)


def _value(pairs: list[tuple[float, float]]) -> list[float]:
    """Return [tasks with a score, their mean score, the mean of their -loss]; never NaN."""
    scored = [pair for pair in pairs if not math.isnan(pair[0])]
    means = [sum(part) / len(scored) for part in zip(*scored, strict=True)] if scored else [-math.inf, -math.inf]
    return [float(len(scored)), *(-math.inf if math.isnan(mean) else mean for mean in means)]
