"""Objectives of multi-objective comparisons of runs: metrics, measurements of an evaluation, parameters."""

from __future__ import annotations

import math

from mtlscale.metrics.extra_measures import FIGURES, NETWORK
from mtlscale.metrics.names import higher_is_better
from mtlscale.records import RunRecord

PARAMETERS = "parameters"


def more_is_better(objective: str) -> bool:
    """Return the direction of a metric, `loss`, a measurement of an evaluation, or `parameters`.

    Raises:
        UserError: If the metric is unknown.
    """
    if objective in (PARAMETERS, "loss"):
        return False
    return FIGURES[objective].higher_is_better if objective in FIGURES else higher_is_better(objective)


def objective_of(record: RunRecord, objective: str, split: str = "val") -> float:
    """Return an objective's value in a finished run; NaN if it was not measured.

    For a metric it is the mean over tasks on the split.
    """
    if record.status != "finished":
        return math.nan
    if objective == PARAMETERS:
        return float(record.parameters)
    if objective in FIGURES:
        section = NETWORK if FIGURES[objective].of == "network" else split
        return record.figures.get(section, {}).get(objective, math.nan)

    task_values = [values[objective] for values in record.metrics.get(split, {}).values() if objective in values]
    return sum(task_values) / len(task_values) if task_values else math.nan


def to_minimise(record: RunRecord, objectives: tuple[str, ...], split: str = "val") -> list[float]:
    """Return the values of the objectives, negated where more is better; infinite where one is no number."""
    values = []
    for objective in objectives:
        value = objective_of(record, objective, split)
        values.append((-value if more_is_better(objective) else value) if math.isfinite(value) else math.inf)
    return values
