"""The search space of a method, and the trials drawn from it.

Pure: the trials of grid and random search are a function of the search's seed, the method and the space alone. The i-th
trials of all methods share the values of the common space, so methods are compared on the same settings.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Mapping, Sequence

from mtlscale.config.errors import UserError
from mtlscale.config.registry.nearest import nearest
from mtlscale.config.registry.synonyms import names_here
from mtlscale.config.run.run import Run
from mtlscale.config.settings.models import TrainingSpec
from mtlscale.config.settings.search_space import PARTS, Dimension, Knobs, SearchSpec, split_path
from mtlscale.config.tasks import TaskSuite

# -- spaces --------------------------------------------------------------------------------------------------------


def space_of(search: SearchSpec, run: Run) -> dict[str, Dimension]:
    """Return the search space of a run's method: the common space, then the method's own knobs."""
    method_space = search.methods.get(run.method, search.methods.get(run.row))
    return {**search.space, **(default_space(run) if method_space is None else method_space)}


def default_space(run: Run) -> dict[str, Dimension]:
    """Return the default ranges of the knobs of a run's architecture, balancer and objective."""
    space: dict[str, Dimension] = {}
    for part in ("architecture", "balancer", "objective"):
        component = getattr(run.parts, part)
        knobs = {} if component is None else component.knobs()
        space |= {f"{part}.{name}": Dimension.of_knob(knob.search) for name, (_, knob) in knobs.items() if knob.search}
    return space


def whole_number(run: Run, path: str) -> bool:
    """Return whether a setting is an integer.

    Raises:
        UserError: If the run has no such setting.
    """
    part, knob = split_path(path)
    if part == "training":
        if knob not in TrainingSpec.model_fields:
            hint = nearest(knob, list(TrainingSpec.model_fields), listing="keys training")
            raise UserError(f"search: unknown setting {path}; {hint}")
        return TrainingSpec.model_fields[knob].annotation in (int, int | None)

    if path == "model.dropout":
        return False
    if part not in PARTS:
        if (key := _meant(path)) in TrainingSpec.model_fields:
            raise UserError(f"search: {path} is no setting of a run; write it with its section, as training.{key}")
        known_settings = ["training.…", "model.dropout", *(f"{part}.…" for part in PARTS)]
        raise UserError(f"search: {path} is no setting of a run; known: {', '.join(known_settings)}")

    component = getattr(run.parts, part.removeprefix("model."))
    if component is None:
        raise UserError(f"search: method {run.method} has no {part}, so no {path}")

    knobs = component.knobs()
    if knob not in knobs:
        hint = nearest(knob, list(knobs)) if knobs else "it has none"
        raise UserError(f"search: {part} {component.name} of method {run.method} has no knob {knob!r}; {hint}")
    return isinstance(knobs[knob][0], int) and not isinstance(knobs[knob][0], bool)


def _meant(key: str) -> str:
    """Return the key of `training` that a name stands for, such as lr for learning_rate."""
    return next((name for name in names_here(key) if name in TrainingSpec.model_fields), key)


def check(search: SearchSpec, methods: Sequence[str], seeds: Sequence[int]) -> None:
    """Raise `UserError` for contradictions between a search and the experiment, or within the search."""
    for label in search.methods:
        if label not in methods:
            raise UserError(f"search.methods: unknown method {label!r}; {nearest(label, methods)}")
    if search.seed in seeds:
        raise UserError(
            f"search.seed {search.seed} is one of seeds; winners are retrained on fresh seeds: choose another"
        )

    for key in search.training:
        if f"training.{key}" in search.space:
            raise UserError(f"search.training.{key} is searched, too; drop it there or in search.space")

    if search.executor == "batched" and search.adaptive:
        raise UserError(
            f"search.executor batched has no {search.algorithm} with scheduler "
            f"{search.scheduler}; drop `executor` or set it to tune"
        )

    if (search.algorithm == "nsga2") != bool(search.objectives):
        remedy = "name two or more" if search.algorithm == "nsga2" else "drop them, or set search.algorithm to nsga2"
        raise UserError(f"search.objectives are those of nsga2: {remedy}")
    if search.algorithm == "nsga2":
        if len(set(search.objectives)) < max(2, len(search.objectives)):
            raise UserError("search.objectives: nsga2 weighs two or more against each other; name each once")
        if search.scheduler != "none":
            raise UserError(f"search.scheduler {search.scheduler} compares one score; drop it with nsga2")

    if search.scheduler == "pbt" and search.algorithm == "optuna":
        raise UserError("search.scheduler pbt draws its own settings; set search.algorithm to random or grid")


def check_space(search: SearchSpec, run: Run) -> None:
    """Raise `UserError` for settings and values that the method of this run does not have."""
    for path, dimension in space_of(search, run).items():
        is_integer = whole_number(run, path)
        for value in dimension.ends():
            run.tuned({path: round(value) if is_integer and isinstance(value, float) else value})


def check_metric(search: SearchSpec, suite: TaskSuite) -> None:
    """Raise `UserError` if a task of the suite does not report the metric of the search."""
    if search.metric is None or search.metric == "loss":
        return
    for task in suite.tasks:
        if search.metric not in task.metrics:
            raise UserError(
                f"search.metric {search.metric!r}: task {task.name} of {suite.name} reports "
                f"{', '.join(task.metrics)} and loss; {nearest(search.metric, [*task.metrics, 'loss'])}"
            )


# -- trials --------------------------------------------------------------------------------------------------------


def trials(search: SearchSpec, run: Run) -> list[Run]:
    """Return the trials of grid or random search for the method of this run.

    There are at most `budget` of them, fewer if the space has fewer points.
    """
    space = space_of(search, run)
    integers = {path: whole_number(run, path) for path in space}
    knobs = (
        _grid(search, run.method, space, integers) if search.algorithm == "grid" else _random(search, space, integers)
    )
    return [run.tuned(values) for values in knobs]


def belongs(search: SearchSpec, run: Run, knobs: Mapping[str, object]) -> bool:
    """Return whether a trial with these settings is one of the search as it is now, for the method of this run."""
    space = space_of(search, run)
    return knobs.keys() == space.keys() and all(
        dimension.holds(knobs[path], whole_number(run, path)) for path, dimension in space.items()
    )


def budget_of(search: SearchSpec, run: Run) -> int:
    """Return how many trials the method of this run gets: the budget, or as many as there are unlike settings."""
    if search.algorithm == "grid":
        return len(trials(search, run))
    sizes = (dimension.size(whole_number(run, path)) for path, dimension in space_of(search, run).items())
    return int(min(search.budget, math.prod(sizes)))


def _random(search: SearchSpec, space: Mapping[str, Dimension], integer_knobs: Mapping[str, bool]) -> list[Knobs]:
    points: dict[str, Knobs] = {}
    for index in range(search.budget):
        for attempt in range(100):
            knobs = {
                path: dimension.at(_unit(search.seed, path, index, attempt), integer_knobs[path])
                for path, dimension in space.items()
            }
            key = json.dumps(knobs)
            if key not in points:
                points[key] = knobs
                break
        else:
            break  # the space has no more points

    return list(points.values())


def _grid(
    search: SearchSpec, method: str, space: Mapping[str, Dimension], integer_knobs: Mapping[str, bool]
) -> list[Knobs]:
    """Return all points of the grid, or `budget` of them drawn without repetition, in the grid's order."""
    levels = [dimension.levels(integer_knobs[path]) for path, dimension in space.items()]
    total = math.prod(len(values) for values in levels)
    if total <= search.budget:
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*levels)]

    chosen: set[int] = set()
    draws = itertools.count()
    while len(chosen) < search.budget:
        chosen.add(int(_unit(search.seed, method, "grid", next(draws)) * total))

    result = []
    for point in sorted(chosen):
        knobs = {}
        for path, values in zip(reversed(list(space)), reversed(levels), strict=True):
            point, level = divmod(point, len(values))
            knobs[path] = values[level]
        result.append({path: knobs[path] for path in space})
    return result


def _unit(*parts: object) -> float:
    """Return a pseudo-random number in [0, 1) that depends on the parts alone."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)
