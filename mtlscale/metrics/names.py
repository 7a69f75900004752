"""Metrics of a task: names, directions and the losses they are defined for. Importing this needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from mtlscale.config import LOSSES, Component, Task, TaskSuite, UserError, component, names, nearest

if TYPE_CHECKING:
    from mtlscale.metrics.accumulators import Accumulator


@dataclass(frozen=True, kw_only=True)
class MetricInfo:
    """The properties of a metric that are known without a task.

    Rates are in percent, as the published tables print them.
    """

    higher_is_better: bool
    losses: tuple[str, ...]  # the losses of the tasks it is defined for
    help: str
    unit: str = ""
    lowest: float = 0.0  # the least it can be
    highest: float | None = None  # the most it can be, where it has a bound
    one_score: bool = False  # wants one output, or two classes
    of_tokens: bool = False  # wants sequences of tags with names
    grouped: bool = False  # wants a task whose samples are grouped by an input column
    simulated: bool = False  # measured by episodes in the task's environment, not by labels


class Metric(Component):
    """Base of users' own metrics: a subclass with a `name` in a plugin file, used by that name like a shipped one."""

    kind: ClassVar[str] = "metrics"
    higher_is_better: ClassVar[bool]
    losses: ClassVar[tuple[str, ...]]  # the losses of the tasks it is defined for
    unit: ClassVar[str] = ""
    lowest: ClassVar[float] = 0.0  # the least it can be: relative gains count from there
    one_score: ClassVar[bool] = False  # wants one output, or two classes

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
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
        if cls.accumulator is Metric.accumulator:
            raise UserError(f"metric {cls.name} has no accumulator(self, task)")

    def accumulator(self, task: Task) -> Accumulator:
        """Return the accumulator that is fed with the rows of a split, on every worker, and read at its end."""
        raise NotImplementedError


_LABELS = ("cross_entropy", "soft_cross_entropy", "bce")
_ROUNDED = 1e-4  # batched runs count in single precision: an AUROC of 100 is 100.000012 there
_CLASSES = ("cross_entropy", "bce")
_NUMBERS = ("mse", "l1")

IN_UNITS = ("rmse", "mae", "abs_err")  # errors in the units of the targets
METRICS: dict[str, MetricInfo] = {
    "accuracy": MetricInfo(higher_is_better=True, losses=_LABELS, unit="%", help="right labels among those present"),
    "error": MetricInfo(higher_is_better=False, losses=_LABELS, unit="%", help="100 − accuracy"),
    "soft_error": MetricInfo(
        higher_is_better=False,
        losses=("soft_cross_entropy",),
        unit="%",
        help="samples whose most likely class is not that of the soft label",
    ),
    "cross_entropy": MetricInfo(higher_is_better=False, losses=_LABELS, unit="nats", help="mean over labels present"),
    "f1": MetricInfo(
        higher_is_better=True,
        losses=("cross_entropy", "bce"),
        unit="%",
        help="of the positive class where there is one output, else mean over classes in truth or prediction",
    ),
    "auroc": MetricInfo(
        higher_is_better=True,
        losses=("cross_entropy", "bce"),
        unit="%",
        help="exact area under the ROC curve, one class against the rest, mean over classes with both kinds of samples",
    ),
    "aupr": MetricInfo(
        higher_is_better=True,
        losses=_CLASSES,
        unit="%",
        help="exact area under precision and recall (average precision) of the positive class; of more classes or "
        "labels each against the rest, mean over those with both kinds of samples",
    ),
    "gauroc": MetricInfo(
        higher_is_better=True,
        losses=_CLASSES,
        unit="%",
        one_score=True,
        grouped=True,
        help="area under the ROC curve of each group's samples, such as a user's, mean over groups with both classes, "
        "weighted by their size (GAUC)",
    ),
    "ece": MetricInfo(
        higher_is_better=False,
        losses=_CLASSES,
        unit="%",
        one_score=True,
        help="expected calibration error: mean over 15 bins of |mean probability − share of positives|, weighted by "
        "their size",
    ),
    "binary_f1": MetricInfo(
        higher_is_better=True, losses=_CLASSES, unit="%", one_score=True, help="F1 of the positive (the last) class"
    ),
    "matthews": MetricInfo(
        higher_is_better=True,
        losses=_CLASSES,
        lowest=-1.0,
        help="Matthews correlation of labels and answers, 0 where one of them never varies; of labels their mean",
    ),
    "mse": MetricInfo(higher_is_better=False, losses=_NUMBERS, help="mean squared error"),
    "rmse": MetricInfo(higher_is_better=False, losses=_NUMBERS, help="root of the mean squared error over the split"),
    "mae": MetricInfo(higher_is_better=False, losses=_NUMBERS, help="mean absolute error"),
    "welsch": MetricInfo(
        higher_is_better=False, losses=("welsch",), highest=1.0, help="mean of 1 − exp(−|e|²), e the error of a sample"
    ),
    "ndcg": MetricInfo(
        higher_is_better=True,
        losses=(*_CLASSES, *_NUMBERS),
        unit="%",
        one_score=True,
        help="all samples of the split in one list, ordered by score, gains the labels (none may be negative)",
    ),
    "pearson": MetricInfo(
        higher_is_better=True,
        losses=_NUMBERS,
        lowest=-1.0,
        help="correlation of labels and predictions, mean over outputs that vary in both",
    ),
    "spearman": MetricInfo(
        higher_is_better=True, losses=_NUMBERS, lowest=-1.0, help="the same of their ranks, ties sharing theirs"
    ),
    "miou": MetricInfo(
        higher_is_better=True,
        losses=("cross_entropy",),
        unit="%",
        help="mean over classes of intersection over union, from one confusion matrix over the split",
    ),
    "pixel_accuracy": MetricInfo(
        higher_is_better=True, losses=("cross_entropy",), unit="%", help="right pixels among those with a label"
    ),
    "pixel_error": MetricInfo(higher_is_better=False, losses=("cross_entropy",), unit="%", help="100 − pixel accuracy"),
    "abs_err": MetricInfo(higher_is_better=False, losses=_NUMBERS, help="mean absolute depth error over valid pixels"),
    "rel_err": MetricInfo(higher_is_better=False, losses=_NUMBERS, help="mean of the depth error over the true depth"),
    "angle_mean": MetricInfo(
        higher_is_better=False, losses=("cosine",), unit="°", help="mean angle to the true normal"
    ),
    "angle_median": MetricInfo(
        higher_is_better=False, losses=("cosine",), unit="°", help="exact median of the angles of all valid pixels"
    ),
    "angle_rmse": MetricInfo(
        higher_is_better=False, losses=("cosine",), unit="°", help="root of the mean squared angle"
    ),
    **{
        f"within_{bound}": MetricInfo(
            higher_is_better=True, losses=("cosine",), unit="%", help=f"normals less than {bound}° off"
        )
        for bound in ("11.25", "22.5", "30")
    },
    "max_f": MetricInfo(
        higher_is_better=True,
        losses=("cross_entropy", "bce"),
        unit="%",
        help="largest F (β² = 0.3) over 256 thresholds on the saliency map, pooled over the split",
    ),
    "entity_f1": MetricInfo(
        higher_is_better=True,
        losses=("cross_entropy",),
        unit="%",
        of_tokens=True,
        help="of entities in sequences of IOB2 tags, right in type, first and last token, pooled over the split (as "
        "seqeval's micro F1; of other tags the runs of one tag)",
    ),
    "success": MetricInfo(
        higher_is_better=True,
        losses=_NUMBERS,
        unit="%",
        simulated=True,
        help="episodes in the task's environment in which the policy succeeds at any step",
    ),
    "return": MetricInfo(
        higher_is_better=True,
        losses=_NUMBERS,
        simulated=True,
        help="sum of an episode's rewards over all its steps, mean over episodes",
    ),
}


def metric_info(name: str) -> MetricInfo:
    """Return the properties of a metric.

    Raises:
        UserError: If no metric has this name; the message lists the nearest names.
    """
    if name in METRICS:
        return METRICS[name]

    known_names = names("metrics")
    if name not in known_names:
        raise UserError(f"unknown metric {name!r}: {nearest(name, known_names, listing='metrics')}")

    plugin_metric: type[Metric] = component("metrics", name)
    return MetricInfo(
        higher_is_better=plugin_metric.higher_is_better,
        losses=plugin_metric.losses,
        help=plugin_metric.summary(),
        unit=plugin_metric.unit,
        lowest=plugin_metric.lowest,
        one_score=plugin_metric.one_score,
    )


def higher_is_better(metric: str) -> bool:
    """Return the direction of a metric.

    Raises:
        UserError: If no metric has this name; the message lists the nearest names.
    """
    return metric_info(metric).higher_is_better


def lowest(metrics: Sequence[str]) -> dict[str, float]:
    """Return metric -> the least it can be, for metrics that can be negative."""
    bounds = {name: metric_info(name).lowest for name in metrics}
    return {name: value for name, value in bounds.items() if value}


_HIGHEST = {"%": 100.0, "°": 180.0}  # unit -> the largest value


def possible(metric: str, value: float) -> bool:
    """Return whether a metric can have this value; the values of users' own metrics have no upper bound."""
    info = metric_info(metric)
    highest = _HIGHEST.get(info.unit, 1.0 if info.lowest == -1.0 else math.inf) if metric in METRICS else math.inf
    return math.isfinite(value) and info.lowest - _ROUNDED <= value <= highest + _ROUNDED


def simulated(task: Task) -> tuple[str, ...]:
    """Return the metrics of a task that are measured by episodes."""
    return tuple(name for name in task.metrics if name in METRICS and METRICS[name].simulated)


def check_task(task: Task) -> None:
    """Check a task's loss and metrics.

    Raises:
        UserError: If the loss or a metric is unknown, the task has no metric, a metric is not defined for it, or one is
            named twice.
    """
    if task.loss not in LOSSES:
        raise UserError(f"task {task.name!r}: unknown loss {task.loss!r}: {nearest(task.loss, LOSSES)}")
    if not task.metrics:
        raise UserError(f"task {task.name!r} has no metrics; name one at least, such as {_fitting(task)[0]}")

    for name in task.metrics:
        try:
            metric_info(name)
        except UserError as error:
            raise UserError(f"task {task.name!r}: {error}") from None
        if problem := _misfit(name, task):
            raise UserError(f"task {task.name!r}: metric {name!r} {problem}; use one of {', '.join(_fitting(task))}")

    duplicates = sorted({name for name in task.metrics if task.metrics.count(name) > 1})
    if duplicates:
        raise UserError(f"task {task.name!r} names metric {duplicates[0]!r} twice; drop one")


def measured(suite: TaskSuite, selection: Sequence[str] | Mapping[str, Sequence[str]]) -> TaskSuite:
    """Return the suite with other metrics.

    Args:
        selection: Task -> metrics, or a list of which every task takes the metrics that are defined for it.

    Raises:
        UserError: For unknown tasks and metrics, and for tasks that would be left without any metric.
    """
    by_task = selection if isinstance(selection, Mapping) else None
    if by_task is not None:
        task_names = [task.name for task in suite.tasks]
        for name in by_task:
            if name not in task_names:
                raise UserError(f"metrics: {suite.name} has no task {name!r}; {nearest(name, task_names)}")

    tasks = []
    for task in suite.tasks:
        if by_task is not None:
            task_metrics = tuple(by_task.get(task.name, task.metrics))
        else:
            task_metrics = tuple(name for name in selection if metric_info(name) and not _misfit(name, task))
            if selection and not task_metrics:
                reasons = "; ".join(f"metric {name!r} {_misfit(name, task)}" for name in selection)
                fitting = ", ".join(_fitting(task))
                raise UserError(f"metrics: task {task.name!r}: {reasons}; use one of {fitting}")
        tasks.append(replace(task, metrics=task_metrics))
        check_task(tasks[-1])

    for name in selection if by_task is None else ():
        if not any(name in task.metrics for task in tasks):
            raise UserError(f"metrics: {name} is not defined for any task of {suite.name}; drop it")
    return replace(suite, tasks=tuple(tasks))


def _misfit(metric: str, task: Task) -> str:
    """Return the reason why the metric is not defined for the task, "" if it is."""
    info = metric_info(metric)
    if task.loss not in info.losses:
        reason = "measures episodes of tasks that are environments, and " if info.simulated else ""
        return f"{reason}is not defined for loss {task.loss!r}"

    if info.one_score and task.outputs != (2 if task.loss == "cross_entropy" else 1):
        requirement = "two classes" if task.loss == "cross_entropy" else "one output"
        return f"is defined for {requirement}, not for {task.outputs}"
    if info.grouped and task.group is None:
        return "needs a column of groups; name it by the option `grouped` of a table"
    if info.of_tokens and (task.per != "token" or not task.classes):
        return "is defined for tags of tokens that have names"
    return ""


def _fitting(task: Task) -> list[str]:
    return [name for name in dict.fromkeys([*METRICS, *names("metrics")]) if not _misfit(name, task)]
