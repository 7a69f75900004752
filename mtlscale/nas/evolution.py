"""NSGA-II over any search space, by pymoo: settings drawn generation by generation, for several objectives at once.

The draws are a function of the seed and of how the earlier settings have ended, whatever their order. A search that was
cut off is drawn again from its first generation, and settings with a known result are not tried again. Hence pymoo:
draws of Optuna's sampler change with the order in which trials end.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mtlscale.config import Dimension, Knobs, SearchSpec
from mtlscale.metrics.objectives import to_minimise
from mtlscale.records import RunRecord

WORST = 1e12  # replaces values that are no numbers: distances between infinities are undefined
_NOTHING_NEW = 20  # generations in a row without anything new, after which the space counts as exhausted


class Exhausted(Exception):
    """The search space holds nothing new to try."""


class Evolution:
    """The settings of a search by NSGA-II, in the order in which they are to be tried."""

    def __init__(self, space: Mapping[str, Dimension], integer_knobs: Mapping[str, bool], search: SearchSpec) -> None:
        from pymoo.algorithms.moo.nsga2 import NSGA2, binary_tournament
        from pymoo.core.mixed import (
            MixedVariableDuplicateElimination,
            MixedVariableMating,
            MixedVariableSampling,
        )
        from pymoo.core.problem import Problem
        from pymoo.operators.selection.tournament import TournamentSelection

        self._space, self._integer_knobs, self._objectives = dict(space), dict(integer_knobs), len(search.objectives)
        self._problem = Problem(vars=self._variables(), n_obj=self._objectives)

        twins = MixedVariableDuplicateElimination()
        self._algorithm = NSGA2(
            pop_size=search.population,
            sampling=MixedVariableSampling(),
            mating=MixedVariableMating(
                selection=TournamentSelection(func_comp=binary_tournament),
                eliminate_duplicates=twins,
                n_max_iterations=20,
            ),
            eliminate_duplicates=twins,
        )

        self._algorithm.setup(self._problem, termination=("n_gen", 10**9), seed=search.seed, verbose=False)
        self._evaluated: dict[str, list[float]] = {}
        self._begin()

    def ask(self) -> Knobs | None:
        """Return settings that nobody has begun, or None if the next ones depend on some that have not ended.

        Raises:
            Exhausted: If there are no others.
        """
        for _ in range(_NOTHING_NEW):
            for key, knobs in self._generation:
                if key not in self._evaluated and key not in self._begun:
                    self._begun.add(key)
                    return knobs
            if any(key not in self._evaluated for key, _ in self._generation):
                return None
            self._end()
        raise Exhausted

    def tell(self, knobs: Knobs, values: list[float]) -> None:
        """Record the objective values of settings that have ended; lower is better."""
        self._evaluated[_key(knobs)] = [value if math.isfinite(value) else WORST for value in values]

    def _begin(self) -> None:
        self._asked = self._algorithm.ask()
        if self._asked is None or not len(self._asked):  # every candidate is a duplicate
            raise Exhausted
        drawn = [self._knobs(individual.X) for individual in self._asked]
        self._generation = [(_key(knobs), knobs) for knobs in drawn]
        self._begun: set[str] = set()

    def _end(self) -> None:
        from pymoo.core.evaluator import Evaluator
        from pymoo.problems.static import StaticProblem

        values = np.array([self._evaluated[key] for key, _ in self._generation], dtype=float)
        Evaluator().eval(StaticProblem(self._problem, F=values), self._asked)
        self._algorithm.tell(infills=self._asked)
        self._begin()

    def _variables(self) -> dict[str, Any]:
        from pymoo.core.variable import Choice, Integer, Real

        variables: dict[str, Any] = {}
        for path, dimension in self._space.items():
            if dimension.numbers is not None:
                for position, count in enumerate(dimension.numbers):
                    variables[f"{path}#{position}"] = Choice(options=list(range(count)))
            elif dimension.choices is not None:
                variables[path] = Choice(options=list(range(len(dimension.choices))))
            elif self._integer_knobs[path] and dimension.scale == "linear":
                variables[path] = Integer(bounds=(round(dimension.low), round(dimension.high)))
            else:
                variables[path] = Real(bounds=(0.0, 1.0))
        return variables

    def _knobs(self, sample: Mapping[str, Any]) -> Knobs:
        knobs: Knobs = {}
        for path, dimension in self._space.items():
            if dimension.numbers is not None:
                knobs[path] = " ".join(str(int(sample[f"{path}#{n}"])) for n in range(len(dimension.numbers)))
            elif dimension.choices is not None:
                knobs[path] = dimension.choices[int(sample[path])]
            elif self._integer_knobs[path] and dimension.scale == "linear":
                knobs[path] = int(sample[path])
            else:
                knobs[path] = dimension.at(min(float(sample[path]), 1.0), self._integer_knobs[path])
        return knobs


def _key(knobs: Knobs) -> str:
    return json.dumps(knobs, sort_keys=True)


def searcher(evolution: Evolution, shared: Any, search: SearchSpec) -> Any:
    """Return the searcher by which Tune asks for the settings of its trials.

    `shared` is the `Setup` of `mtlscale.execution.tuning.tune_setup`.
    """
    from ray.tune.search import Searcher

    class NSGA2(Searcher):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(metric="score", mode="max")
            self._of: dict[str, Knobs] = {}

        def set_search_properties(self, metric: Any, mode: Any, config: Any, **spec: Any) -> bool:
            return True

        def suggest(self, trial_id: str) -> Any:
            try:
                knobs = evolution.ask()
            except Exhausted:
                return Searcher.FINISHED
            if knobs is None:
                return None
            self._of[trial_id] = knobs
            return shared.settings(knobs)

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            knobs = self._of.pop(trial_id, None)
            if knobs is not None:
                failed = error or not result or "objectives" not in result
                evolution.tell(knobs, [math.inf] * len(search.objectives) if failed else result["objectives"])

    return NSGA2()


def nsga2(search: SearchSpec, setup: Any, records: Sequence[RunRecord]) -> Any:
    """Return the searcher of `algorithm: nsga2`, told of the trials that have ended; None for other algorithms.

    `setup` is the `Setup` of `mtlscale.execution.tuning.tune_setup`.
    """
    if search.algorithm != "nsga2":
        return None
    evolution = Evolution(setup.space, setup.integer_knobs, search)
    for record in records:
        evolution.tell(record.trial, to_minimise(record, search.objectives))
    return searcher(evolution, setup, search)
