"""A search space as Optuna and Ray Tune have it: choices by their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mtlscale.spec import Dimension, UserError


def distributions(space: Mapping[str, Dimension], whole: Mapping[str, bool]) -> dict[str, Any]:
    """As Optuna has them."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for path, dimension in space.items():
        log = dimension.scale == "log"
        if dimension.numbers is not None:
            raise UserError(f"search: optuna draws no text of numbers, as {path} is; choose random or nsga2")
        if dimension.choices is not None:
            found[path] = CategoricalDistribution(list(range(len(dimension.choices))))
        elif whole[path]:
            found[path] = IntDistribution(round(dimension.low), round(dimension.high), log=log)
        else:
            found[path] = FloatDistribution(dimension.low, dimension.high, log=log)
    return found


def domains(space: Mapping[str, Dimension]) -> dict[str, Any]:
    """As Tune has them."""
    from ray import tune

    found: dict[str, Any] = {}
    for path, dimension in space.items():
        if dimension.numbers is not None:
            found[path] = dimension.ends()[0]  # points to evaluate say it
        elif dimension.choices is not None:
            found[path] = tune.choice(list(range(len(dimension.choices))))
        else:
            found[path] = (tune.loguniform if dimension.scale == "log" else tune.uniform)(dimension.low, dimension.high)
    return found


def moves(path: str, dimension: Dimension, whole: bool) -> bool:
    """Whether a setting may change within a trial: a number on a range that no tensor's shape depends on."""
    return (
        dimension.choices is None and dimension.numbers is None and not whole and not path.startswith("architecture.")
    )
