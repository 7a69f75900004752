"""Bases of metrics, shipped ones and users' own alike. Importing this needs no torch."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from mtlscale.config import LOSSES, Component, Task, UserError
from mtlscale.lazy import Tensor, torch
from mtlscale.metrics.accumulators import Accumulator, Scores, Sums
from mtlscale.metrics.rows import filled, present_rows


class Metric(Component):
    """Base of metrics: a subclass with a `name` says what is pooled over a split, and how the metric comes from that.

    It defines `sums`, which are added up over batches and workers, or `scores`, which are gathered from them. What an
    own `accumulator` computes is pooled, too.
    """

    kind: ClassVar[str] = "metrics"
    higher_is_better: ClassVar[bool]
    losses: ClassVar[tuple[str, ...]]  # the losses of the tasks it is defined for
    unit: ClassVar[str] = ""  # rates are in percent, as the published tables print them
    lowest: ClassVar[float] = 0.0  # the least it can be: relative gains count from there
    highest: ClassVar[float | None] = None  # the most it can be, where it has a bound beside that of its unit
    in_units: ClassVar[bool] = False  # an error in the units of the targets
    one_score: ClassVar[bool] = False  # wants one output, or two classes
    of_tokens: ClassVar[bool] = False  # wants sequences of tags with names; these are its rows
    grouped: ClassVar[bool] = False  # wants samples grouped by an input column: the group of each row comes last
    simulated: ClassVar[bool] = False  # measured by episodes in the task's environment, not by labels

    def __init_subclass__(cls) -> None:
        # Not made a dataclass, as other components are, since it has no settings: forty of them take 20 ms.
        if "name" not in cls.__dict__:
            return

        if cls.name == "loss":
            raise UserError("metric loss: every task reports its loss under this name; choose another")
        if not isinstance(getattr(cls, "higher_is_better", None), bool):
            raise UserError(f"metric {cls.name}: higher_is_better is not said; set it to True or False")
        losses = getattr(cls, "losses", ())
        if not isinstance(losses, tuple) or not losses or set(losses) - set(LOSSES):
            raise UserError(f"metric {cls.name}: losses is a tuple of some of {', '.join(LOSSES)}")

        if not math.isfinite(cls.lowest):
            raise UserError(f"metric {cls.name}: lowest is the least it can be, a finite number")
        if any(isinstance(value, dataclasses.Field) for value in vars(cls).values()):
            raise UserError(f"metric {cls.name}: a metric has no settings; make each a class attribute")
        pools = any(getattr(cls, name) is not getattr(Metric, name) for name in _POOLING)
        if not pools and not cls.simulated:
            raise UserError(f"metric {cls.name} pools nothing; define sums(self, task, prediction, target)")

    def sums(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        """Return sums or counts [k] of the rows of a batch.

        Args:
            prediction: [n, outputs], one row per sample or pixel; n may be 0.
            target: [n] classes or [n, outputs] numbers, some of them missing (`MISSING_CLASS`, NaN).
        """
        return self.item_sums(task, prediction, target, 1)[0]

    def merge(self, total: Tensor, added: Tensor) -> Tensor:
        """Return the sums of two parts of a split together."""
        return total + added

    def scores(self, task: Task, prediction: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores [m, ...] and labels [m, ...] of the rows of a batch, for metrics that no sum determines."""
        raise NotImplementedError

    def finish(self, task: Task, pooled: Any) -> float:
        """Return the metric of a split's sums, or of its scores and labels; NaN where it is not defined."""
        return float(pooled)

    def accumulator(self, task: Task) -> Accumulator:
        """Return an accumulator over the batches of a split."""
        if type(self).scores is Metric.scores:
            return Sums(functools.partial(self.sums, task), self.merge)
        return Scores(functools.partial(self.scores, task))

    def item_sums(self, task: Task, prediction: Tensor, target: Tensor, items: int) -> Tensor:
        """Return the sums of each item, float64 [items, k]; an item has one row or, as an image, several.

        Metrics without it, but with `sums`, are left out of the bootstrap over items.
        """
        raise NotImplementedError


_POOLING = ("sums", "scores", "accumulator", "item_sums")  # a metric defines one of these


class Mean(Metric):
    """Base of metrics that are a mean over labels, or a function of one, such as an accuracy.

    They are computed for many trials at once, under vmap. Metrics with the same static methods compute them once.
    """

    @staticmethod
    def present(task: Task, target: Tensor) -> Tensor:
        """Return the mask of the rows (or entries) that count."""
        return present_rows(task, target)

    def values(self, task: Task, prediction: Tensor, target: Tensor) -> Tensor:
        """Return a value for each row (or entry) with a label."""
        raise NotImplementedError

    def averaged(self, values: Tensor) -> Tensor:
        """Return that of which the mean is taken."""
        return values

    def item_sums(self, task: Task, prediction: Tensor, target: Tensor, items: int) -> Tensor:
        present = self.present(task, target)
        values = self.averaged(self.values(task, prediction, filled(target, present)))
        pair = torch.stack([torch.where(present, values, 0).double(), present.double()])
        return pair.reshape(2, items, -1).sum(-1).T


def averaged_values(metrics: Iterable[Mean], task: Task, prediction: Tensor, target: Tensor) -> dict[str, Tensor]:
    """Return metric -> that of which its mean is taken; values that several share are computed once."""
    computed: dict[Callable[..., Tensor], Tensor] = {}
    averaged = {}
    for metric in metrics:
        if metric.values not in computed:
            computed[metric.values] = metric.values(task, prediction, target)
        averaged[metric.name] = metric.averaged(computed[metric.values])
    return averaged
