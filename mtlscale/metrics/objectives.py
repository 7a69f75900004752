"""What runs are compared by where several things count at once: metrics, figures of an evaluation, parameters."""

from __future__ import annotations

import math

from mtlscale.metrics.figures import FIGURES, NETWORK
from mtlscale.metrics.names import higher_is_better
from mtlscale.records import RunRecord

PARAMETERS = "parameters"


def more_is_better(objective: str) -> bool:
    """The direction of a metric, `loss`, a figure, or `parameters`; `UserError` for a metric nobody has."""
    if objective in (PARAMETERS, "loss"):
        return False
    return FIGURES[objective].higher_is_better if objective in FIGURES else higher_is_better(objective)


def objective_of(record: RunRecord, objective: str, split: str = "val") -> float:
    """Its value in a finished run: of a metric the mean over tasks on the split. NaN where it was not measured."""
    if record.status != "finished":
        return math.nan
    if objective == PARAMETERS:
        return float(record.parameters)
    if objective in FIGURES:
        where = NETWORK if FIGURES[objective].of == "network" else split
        return record.figures.get(where, {}).get(objective, math.nan)
    found = [values[objective] for values in record.metrics.get(split, {}).values() if objective in values]
    return sum(found) / len(found) if found else math.nan


def to_minimise(record: RunRecord, objectives: tuple[str, ...], split: str = "val") -> list[float]:
    """The values of the objectives, turned so that less is better; infinite where one is no number."""
    values = []
    for objective in objectives:
        value = objective_of(record, objective, split)
        values.append((-value if more_is_better(objective) else value) if math.isfinite(value) else math.inf)
    return values
