"""Conversion of a search space for Optuna and Ray Tune: choices become their indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtlscale.config import Dimension, UserError


def distributions(space: Mapping[str, Dimension], integer_knobs: Mapping[str, bool]) -> dict[str, Any]:
    """Return the space as Optuna's distributions."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna_space: dict[str, Any] = {}
    for path, dimension in space.items():
        log = dimension.scale == "log"
        if dimension.numbers is not None:
            raise UserError(f"search: optuna draws no text of numbers, as {path} is; choose random or nsga2")
        if dimension.choices is not None:
            optuna_space[path] = CategoricalDistribution(list(range(len(dimension.choices))))
        elif integer_knobs[path]:
            optuna_space[path] = IntDistribution(round(dimension.low), round(dimension.high), log=log)
        else:
            optuna_space[path] = FloatDistribution(dimension.low, dimension.high, log=log)
    return optuna_space


def domains(space: Mapping[str, Dimension]) -> dict[str, Any]:
    """Return the space as Tune's domains."""
    from ray import tune

    tune_space: dict[str, Any] = {}
    for path, dimension in space.items():
        if dimension.numbers is not None:
            tune_space[path] = dimension.ends()[0]  # a placeholder: the points to evaluate set it
        elif dimension.choices is not None:
            tune_space[path] = tune.choice(list(range(len(dimension.choices))))
        else:
            tune_space[path] = (tune.loguniform if dimension.scale == "log" else tune.uniform)(
                dimension.low, dimension.high
            )
    return tune_space


def moves(path: str, dimension: Dimension, integer_knobs: bool) -> bool:
    """Return whether a setting may change within a trial: a range of numbers that no tensor's shape depends on."""
    return (
        dimension.choices is None
        and dimension.numbers is None
        and not integer_knobs
        and not path.startswith("architecture.")
    )
