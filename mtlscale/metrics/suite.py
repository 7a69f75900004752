"""Suite-level metrics: relative improvement over the single-task baseline (Δ_I), η. docs/methods.md#metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

Values = Mapping[str, Mapping[str, float]]  # task -> metric -> value
Directions = Mapping[str, bool] | Mapping[str, Mapping[str, bool]]  # metric -> higher is better, or task -> metric -> …


def relative_gain(value: Any, reference: Any, sign: Any) -> Any:
    """Return the relative gain in percent: `100 · sign · (value − reference) / |reference|`.

    The absolute value keeps "positive is better" for metrics that can be negative.

    Args:
        value: A float or array.
        reference: A float or array.
        sign: +1 where higher is better, else −1.
    """
    return 100.0 * sign * (value - reference) / abs(reference)


def delta_i(method: Values, single_task: Values, higher_is_better: Directions) -> float:
    """Return Δ_I in percent: the relative gain over single-task learning, mean within a task first, then over tasks."""
    gains = _gains(method, single_task, higher_is_better)
    return _mean([_mean(list(of_task.values())) for of_task in gains.values()])


def delta_flat(method: Values, single_task: Values, higher_is_better: Directions) -> float:
    """Return Δ in percent with every metric counting the same, whichever its task."""
    gains = _gains(method, single_task, higher_is_better)
    return _mean([gain for of_task in gains.values() for gain in of_task.values()])


def delta_main(
    method: Values, single_task: Values, higher_is_better: Directions, main_metrics: Mapping[str, str]
) -> float:
    """Return Δ in percent over one main metric per task.

    Args:
        main_metrics: Task -> metric.

    Raises:
        ValueError: If a task has no value of its main metric.
    """
    for task in single_task:
        if main_metrics.get(task) not in single_task[task]:
            raise ValueError(f"task {task!r} has no main metric among {', '.join(single_task[task])}")

    main = {task: {main_metrics[task]: values[main_metrics[task]]} for task, values in single_task.items()}
    gains = _gains(
        {task: {metric: _value(method, task, metric) for metric in values} for task, values in main.items()},
        main,
        higher_is_better,
    )
    return _mean([gain for of_task in gains.values() for gain in of_task.values()])


def safeness(method: Values, single_task: Values, higher_is_better: Directions) -> float:
    """Return η in percent: the share of metrics that are no worse than single-task learning.

    Ties are safe. The mean is taken within a task first, then over tasks.
    """
    shares = []
    for task, metric, value, reference in _pairs(method, single_task):
        sign = _sign(higher_is_better, task, metric)
        difference = sign * (value - reference)
        shares.append((task, math.nan if math.isnan(difference) else float(difference >= 0)))
    return 100.0 * _mean([_mean([share for share_task, share in shares if share_task == task]) for task in single_task])


def total_error(values: Values, metric: str = "error") -> float:
    """Return the sum over tasks of the error in percent: CelebA's total test error. {task: {metric: value}}."""
    return float(sum(_value(values, task, metric) for task in values))


def relative_error(method: Mapping[str, float], single_task: Mapping[str, float]) -> float:
    """Return e_rel: the mean test error over tasks, divided by that of single-task learning. {task: error}.

    Values below 1 are good.
    """
    _same_tasks(method, single_task)
    reference = _mean(list(single_task.values()))
    if reference == 0:
        raise ValueError("the mean single-task error is 0: the relative error is not defined")
    return _mean(list(method.values())) / reference


def taskwise_improvement(
    method: Mapping[str, float], separate: Mapping[str, float], reading: Literal["accuracy", "error"]
) -> float:
    """Return the mean task-wise improvement over separate models in percent (TOMATO table 4).

    Args:
        method: {task: error} of the method.
        separate: {task: error} of the separate models.
        reading: `"error"` is the stated formula, relative to the separate models' error (used for cross entropy).
            `"accuracy"` is the formula that the printed numbers of classification follow: relative to their accuracy,
            100 − error in percent.
    """
    _same_tasks(method, separate)
    if reading == "accuracy":
        method = {task: 100.0 - error for task, error in method.items()}
        separate = {task: 100.0 - error for task, error in separate.items()}

    gains = _gains(
        {task: {reading: value} for task, value in method.items()},
        {task: {reading: value} for task, value in separate.items()},
        {"accuracy": True, "error": False},
    )
    return _mean([of_task[reading] for of_task in gains.values()])


def _gains(method: Values, single_task: Values, directions: Directions) -> dict[str, dict[str, float]]:
    gains: dict[str, dict[str, float]] = {task: {} for task in single_task}
    for task, metric, value, reference in _pairs(method, single_task):
        if reference == 0:
            raise ValueError(f"single-task {metric} of task {task!r} is 0: the relative gain is not defined")
        gains[task][metric] = relative_gain(value, reference, _sign(directions, task, metric))
    return gains


def _pairs(method: Values, single_task: Values) -> list[tuple[str, str, float, float]]:
    """Return (task, metric, value, single-task value), after checking that both sides hold the same."""
    _same_tasks(method, single_task)
    pairs = []
    for task, values in single_task.items():
        if not values or set(values) != set(method[task]):
            raise ValueError(
                f"task {task!r} has metrics {sorted(method[task])}, but single-task learning has {sorted(values)}"
            )
        pairs += [(task, metric, _value(method, task, metric), reference) for metric, reference in values.items()]
    return pairs


def _value(values: Values, task: str, metric: str) -> float:
    if metric not in values.get(task, {}):
        raise ValueError(f"task {task!r} has no value of metric {metric!r}")
    return values[task][metric]


def _sign(directions: Directions, task: str, metric: str) -> int:
    of_task = directions.get(task)
    higher = of_task.get(metric) if isinstance(of_task, Mapping) else directions.get(metric)
    if higher is None or isinstance(higher, Mapping):
        raise ValueError(f"the direction of metric {metric!r} of task {task!r} is not given in higher_is_better")
    return 1 if higher else -1


def _same_tasks(method: Mapping[str, Any], single_task: Mapping[str, Any]) -> None:
    if not single_task or set(method) != set(single_task):
        raise ValueError(f"the method has tasks {sorted(method)}, but single-task learning has {sorted(single_task)}")


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values))
