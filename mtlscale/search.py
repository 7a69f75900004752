"""What is searched: ranges of settings, the trials drawn from them, and which trial is best.

Pure: the trials of grid and random search are a function of the search's seed, the method and the space alone. The
i-th trials of all methods share the values of the common space, so methods are compared on the same settings.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mtlscale import components
from mtlscale.components import UserError, nearest

if TYPE_CHECKING:
    from mtlscale.experiment import Experiment, Run
    from mtlscale.ledger import Epoch, RunRecord
    from mtlscale.tasks import TaskSuite

Knobs = dict[str, Any]  # dotted path of the spec -> value
Score = tuple[float, float]  # larger is better; the second number breaks ties

# Component kinds by the part of a run's spec they fill; the encoder stands below `model` in the file.
PARTS = {
    "architecture": "architectures",
    "balancer": "balancers",
    "objective": "objectives",
    "model.encoder": "encoders",
}


class Dimension(BaseModel):
    """The values one setting may take: choices, or a range."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float = 0.0
    high: float = 0.0
    scale: Literal["linear", "log"] = "linear"
    points: int = Field(4, ge=2)  # of a range in a grid search
    choices: tuple[Any, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """`[0, 0.25, 0.5]`, or `{low: 1e-4, high: 1e-1, scale: log}`."""
        if isinstance(value, list | tuple):
            return {"choices": value}
        if isinstance(value, Mapping):
            missing = [key for key in ("low", "high") if key not in value and "choices" not in value]
            if missing:
                raise ValueError(f"has no `{missing[0]}`; write {{low: …, high: …}} or a list of choices")
            return value
        raise ValueError("should be {low: …, high: …, scale: log | linear} or a list of choices")

    @model_validator(mode="after")
    def _not_empty(self) -> Dimension:
        if self.choices is not None:
            if not self.choices:
                raise ValueError("the list of choices is empty")
            if len({json.dumps(choice) for choice in self.choices}) < len(self.choices):
                raise ValueError("a choice appears twice")
        elif not self.low < self.high:
            raise ValueError(f"the range from {self.low:g} to {self.high:g} is empty; low must lie below high")
        elif self.scale == "log" and self.low <= 0:
            raise ValueError(f"a range on a log scale starts above 0, not at {self.low:g}")
        return self

    @classmethod
    def of_knob(cls, search: Sequence[Any]) -> Dimension:
        """A knob's default range: (low, high, "log" | "linear"), or choices."""
        if len(search) == 3 and search[2] in ("log", "linear"):
            return cls.model_validate({"low": search[0], "high": search[1], "scale": search[2]})
        return cls.model_validate(list(search))

    def at(self, unit: float, whole: bool = False) -> Any:
        """The value at a place in [0, 1) of the range, to six digits; `whole`: an integer, every one equally likely."""
        if self.choices is not None:
            return self.choices[int(unit * len(self.choices))]
        low, high = (self.low - 0.5, self.high + 0.5) if whole else (self.low, self.high)
        if self.scale == "log":
            value = math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
        else:
            value = low + unit * (high - low)
        return min(int(self.high), max(int(self.low), round(value))) if whole else float(f"{value:.6g}")

    def levels(self, whole: bool = False) -> list[Any]:
        """The values of a grid search, both ends included."""
        if self.choices is not None:
            return list(self.choices)
        ends = (math.log(self.low), math.log(self.high)) if self.scale == "log" else (self.low, self.high)
        places = [ends[0] + (ends[1] - ends[0]) * i / (self.points - 1) for i in range(self.points)]
        values = [float(f"{math.exp(place) if self.scale == 'log' else place:.6g}") for place in places]
        return list(dict.fromkeys(round(value) for value in values)) if whole else values

    def ends(self) -> list[Any]:
        """What has to be admissible for the whole dimension to be."""
        return list(self.choices) if self.choices is not None else [self.low, self.high]


# What every method searches where the experiment names nothing.
COMMON = {
    "training.lr": Dimension(low=1e-4, high=3e-2, scale="log"),
    "training.weight_decay": Dimension(low=1e-6, high=1e-2, scale="log"),
    "model.dropout": Dimension(choices=(0.0, 0.25, 0.5)),
}


class SearchSpec(BaseModel):
    """Hyper-parameter search: every method gets `budget` trials over the common space and its own knobs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    budget: int = Field(32, ge=1)  # trials per method and data set
    algorithm: Literal["random", "grid", "optuna"] = "random"
    scheduler: Literal["none", "asha", "median", "pbt"] = "none"  # ends or changes trials before their last epoch
    executor: Literal["auto", "pool", "fused", "tune"] = "auto"
    seed: int = 1000  # of the sampling, and the training seed of all trials
    metric: str | None = None  # mean over tasks on validation; default: what chooses the epoch
    space: dict[str, Dimension] = COMMON
    methods: dict[str, dict[str, Dimension]] = {}  # label -> its own knobs; default: the ranges of `mtlscale list`
    grace: int = Field(4, ge=1)  # epochs before a scheduler may end a trial
    interval: int = Field(4, ge=1)  # epochs between two exchanges of pbt

    @property
    def ledger(self) -> str:
        """The file of the trials' records; trials that a scheduler may end early are no whole runs and stand apart."""
        return f"trials-{self.algorithm}-{self.scheduler}.jsonl" if self.adaptive else "trials.jsonl"

    @property
    def adaptive(self) -> bool:
        """Whether a trial depends on the results of others."""
        return self.algorithm == "optuna" or self.scheduler != "none"

    def check_installed(self) -> None:
        if self.algorithm == "optuna" and importlib.util.find_spec("optuna") is None:
            raise UserError("search.algorithm optuna needs the package optuna; pip install optuna")


# -- spaces --------------------------------------------------------------------------------------------------------


def split_path(path: str) -> tuple[str, str]:
    """ "model.encoder.dropout" -> ("model.encoder", "dropout")."""
    part, _, knob = path.rpartition(".")
    return part, knob


def space_of(search: SearchSpec, run: Run) -> dict[str, Dimension]:
    """What is searched for the method of this run: the common space, then its own knobs."""
    own = search.methods.get(run.method)
    return {**search.space, **(default_space(run) if own is None else own)}


def default_space(run: Run) -> dict[str, Dimension]:
    """The default ranges of the knobs of a run's architecture, balancer and objective."""
    found: dict[str, Dimension] = {}
    for part in ("architecture", "balancer", "objective"):
        if run.spec[part] is None:
            continue
        knobs = components.component(PARTS[part], run.spec[part]["name"]).knobs()
        found |= {f"{part}.{name}": Dimension.of_knob(knob.search) for name, (_, knob) in knobs.items() if knob.search}
    return found


def whole_number(run: Run, path: str) -> bool:
    """Whether the setting counts something. Raises `UserError` where the run has no such setting."""
    from mtlscale.experiment import TrainingSpec

    part, knob = split_path(path)
    if part == "training":
        if knob not in TrainingSpec.model_fields:
            raise UserError(f"search: unknown setting {path}; {nearest(knob, list(TrainingSpec.model_fields))}")
        return TrainingSpec.model_fields[knob].annotation in (int, int | None)
    if path == "model.dropout":
        return False
    if part not in PARTS:
        known = ["training.…", "model.dropout", *(f"{part}.…" for part in PARTS)]
        raise UserError(f"search: {path} is no setting of a run; known: {', '.join(known)}")
    entry = run.spec[part.removeprefix("model.")]
    if entry is None:
        raise UserError(f"search: method {run.method} has no {part}, so no {path}")
    knobs = components.component(PARTS[part], entry["name"]).knobs()
    if knob not in knobs:
        hint = nearest(knob, list(knobs)) if knobs else "it has none"
        raise UserError(f"search: {part} {entry['name']} of method {run.method} has no knob {knob!r}; {hint}")
    return isinstance(knobs[knob][0], int) and not isinstance(knobs[knob][0], bool)


def check(experiment: Experiment) -> None:
    """`UserError` for what can be known without the data: methods, settings and values that are not there."""
    search = experiment.search
    if search is None:
        return
    labels = [method.label for method in experiment.methods]
    for label in search.methods:
        if label not in labels:
            raise UserError(f"search.methods: unknown method {label!r}; {nearest(label, labels)}")
    if search.seed in experiment.seeds:
        raise UserError(
            f"search.seed {search.seed} is one of seeds; winners are retrained on fresh seeds: choose another"
        )
    if search.executor in ("pool", "fused") and search.adaptive:
        raise UserError(
            f"search.executor {search.executor} has no {search.algorithm} with scheduler "
            f"{search.scheduler}; drop `executor` or set it to tune"
        )
    if search.scheduler == "pbt" and search.algorithm == "optuna":
        raise UserError("search.scheduler pbt draws its own settings; set search.algorithm to random or grid")
    for run in experiment.bases(dict.fromkeys(experiment.data(), "")):
        for path, dimension in space_of(search, run).items():
            whole = whole_number(run, path)
            for value in dimension.ends():
                run.tuned({path: round(value) if whole and isinstance(value, float) else value})


def check_metric(search: SearchSpec, suite: TaskSuite) -> None:
    """`UserError` where a task of the suite does not report the metric that is searched for."""
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
    """The trials of grid or random search for the method of this run, at most `budget`; fewer where the space has
    fewer points."""
    space = space_of(search, run)
    whole = {path: whole_number(run, path) for path in space}
    knobs = _grid(search, run.method, space, whole) if search.algorithm == "grid" else _random(search, space, whole)
    return [run.tuned(values) for values in knobs]


def _random(search: SearchSpec, space: Mapping[str, Dimension], whole: Mapping[str, bool]) -> list[Knobs]:
    found: dict[str, Knobs] = {}
    for index in range(search.budget):
        for attempt in range(100):
            knobs = {
                path: dimension.at(_unit(search.seed, path, index, attempt), whole[path])
                for path, dimension in space.items()
            }
            key = json.dumps(knobs)
            if key not in found:
                found[key] = knobs
                break
        else:
            break  # the space has no more points
    return list(found.values())


def _grid(search: SearchSpec, method: str, space: Mapping[str, Dimension], whole: Mapping[str, bool]) -> list[Knobs]:
    """All points of the grid, or `budget` of them drawn without repetition, in the grid's order."""
    levels = [dimension.levels(whole[path]) for path, dimension in space.items()]
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
            point, place = divmod(point, len(values))
            knobs[path] = values[place]
        result.append({path: knobs[path] for path in space})
    return result


def _unit(*parts: object) -> float:
    """A number in [0, 1) that looks random and depends on the parts alone."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / (1 << 53)


# -- the objective -------------------------------------------------------------------------------------------------


def score(record: RunRecord, metric: str | None = None) -> Score | None:
    """How good a finished run is on validation at its chosen epoch; None where it did not finish.

    The mean over tasks of the metric (default: each task's main one, or minus the loss where that chooses the epoch).
    Where main metrics differ in kind, the mean of their logarithms: differences are relative gains, and no unit rules.
    """
    if record.status != "finished":
        return None
    if metric is None and record.spec["training"]["selection"] == "loss":
        metric = "loss"
    return score_of(record.metrics["val"], record.main_metrics, record.higher_is_better, metric)


def score_of(
    val: Mapping[str, Mapping[str, float]],
    main_metrics: Mapping[str, str],
    higher_is_better: Mapping[str, bool],
    metric: str | None = None,
) -> Score:
    """The score of validation metrics: task -> metric -> value."""
    chosen = {task: metric or main for task, main in main_metrics.items()}
    signs = {task: 1.0 if higher_is_better[name] else -1.0 for task, name in chosen.items()}
    values = {task: val[task][name] for task, name in chosen.items()}
    if len(set(chosen.values())) > 1:
        values = {task: math.log(max(value, 1e-12)) for task, value in values.items()}
    mean = sum(signs[task] * value for task, value in values.items()) / len(values)
    loss = sum(metrics["loss"] for metrics in val.values()) / len(val)
    return (mean if math.isfinite(mean) else -math.inf, -loss if math.isfinite(loss) else -math.inf)


def best_so_far(
    epochs: Iterable[Epoch], main: Mapping[str, str], higher: Mapping[str, bool], metric: str | None
) -> Epoch | None:
    """The best evaluated epoch; None where none was evaluated."""
    found = [epoch for epoch in epochs if epoch.val]
    return max(found, key=lambda epoch: score_of(epoch.val, main, higher, metric), default=None)


def best(records: Iterable[RunRecord], metric: str | None = None) -> RunRecord | None:
    """The best finished record; of equals the first."""
    winner, highest = None, None
    for record in records:
        value = score(record, metric)
        if value is not None and (highest is None or value > highest):
            winner, highest = record, value
    return winner
