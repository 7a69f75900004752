"""Conversion of a search space for Optuna and Ray Tune: choices become their indices."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from mtlscale.config import Dimension, Knobs, UserError
from mtlscale.execution.tuning.tune_setup import Setup
from mtlscale.records import RunRecord


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


def unrepeated_search(shared: Setup, done: Sequence[RunRecord]) -> Any:
    """Return Optuna's search as a class that proposes no settings twice: the budget is counted in trials.

    Where Optuna goes on proposing what has been tried, settings are drawn at random, until there are no others.
    """
    from optuna.trial import TrialState
    from ray.tune.search import Searcher
    from ray.tune.search.optuna import OptunaSearch

    tried = {_key(record.trial) for record in done}
    draws = random.Random(len(tried))

    class UnrepeatedSearch(OptunaSearch):
        def suggest(self, trial_id: str) -> Any:
            for attempt in range(_PROPOSALS + _DRAWS):
                if attempt >= _PROPOSALS:
                    self._ot_study.enqueue_trial(shared.settings(_drawn(shared, draws)))
                settings = super().suggest(trial_id)
                if (key := _key(shared.knobs(settings))) not in tried:
                    tried.add(key)
                    return settings
                self._ot_study.tell(self._ot_trials.pop(trial_id), state=TrialState.FAIL)
            return Searcher.FINISHED

    return UnrepeatedSearch


_PROPOSALS, _DRAWS = 20, 200  # that may repeat what has been tried, for one trial


def _key(knobs: Knobs) -> str:
    return json.dumps(knobs, sort_keys=True)


def _drawn(shared: Setup, draws: random.Random) -> Knobs:
    return {path: dimension.at(draws.random(), shared.integer_knobs[path]) for path, dimension in shared.space.items()}


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
