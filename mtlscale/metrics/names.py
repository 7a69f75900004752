"""Metrics by their names: directions, and which of them a task has. Importing this needs no torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from mtlscale.config import LOSSES, Task, TaskSuite, UserError, component, names, nearest, shipped_metrics
from mtlscale.metrics.contract import Metric

_ROUNDED = 1e-4  # batched runs count in single precision: an AUROC of 100 is 100.000012 there
_HIGHEST = {"%": 100.0, "°": 180.0}  # unit -> the largest value


def metric_named(name: str) -> Metric:
    """Return a metric, shipped or a user's.

    Raises:
        UserError: If no metric has this name; the message lists the nearest names.
    """
    metric: Metric = component("metrics", name)()
    return metric


def known_metric(name: str) -> Metric | None:
    """Return a metric; None for the metric of a plugin that is not loaded, and for what is none."""
    return metric_named(name) if name in names("metrics") else None


def all_metrics() -> dict[str, Metric]:
    """Return name -> metric: the shipped ones in the order of their files, then users' own."""
    return {name: metric_named(name) for name in dict.fromkeys([*shipped_metrics(), *names("metrics")])}


def higher_is_better(metric: str) -> bool:
    """Return the direction of a metric.

    Raises:
        UserError: If no metric has this name; the message lists the nearest names.
    """
    return metric_named(metric).higher_is_better


def lowest(metrics: Sequence[str]) -> dict[str, float]:
    """Return metric -> the least it can be, for metrics that can be negative."""
    bounds = {name: metric_named(name).lowest for name in metrics}
    return {name: value for name, value in bounds.items() if value}


def possible(metric: str, value: float) -> bool:
    """Return whether a metric can have this value; a unit bounds shipped metrics alone, as users write others."""
    info = metric_named(metric)
    of_unit = _HIGHEST.get(info.unit, math.inf) if metric in shipped_metrics() else math.inf
    highest = of_unit if info.highest is None else info.highest
    return math.isfinite(value) and info.lowest - _ROUNDED <= value <= highest + _ROUNDED


def simulated(task: Task) -> tuple[str, ...]:
    """Return the metrics of a task that are measured by episodes."""
    return tuple(name for name in task.metrics if metric_named(name).simulated)


def in_units(metric: str) -> bool:
    """Return whether a metric is an error in the units of the targets."""
    known = known_metric(metric)
    return known is not None and known.in_units


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
            metric_named(name)
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
            task_metrics = tuple(name for name in selection if not _misfit(name, task))
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
    info = metric_named(metric)
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
    return [name for name in all_metrics() if not _misfit(name, task)]
