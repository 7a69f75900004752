"""The search space: ranges of settings, and the budget of a search."""

from __future__ import annotations

import importlib.util
import json
import math
import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from mtlscale.config.errors import UserError
from mtlscale.config.validation import Model, OfValidation

MOST_TRIALS = 100_000  # of one search: every trial is a run with a record of 10 KB that the driver keeps

Knobs = dict[str, Any]  # dotted path of the spec -> value

# Component kinds by the part of a run's spec they fill; the encoder stands below `model` in the file.
PARTS = {
    "architecture": "architectures",
    "balancer": "balancers",
    "objective": "objectives",
    "model.encoder": "encoders",
}


class Dimension(Model):
    """The values one setting may take: choices, or a range."""

    low: float = 0.0  # smallest value tried
    high: float = 0.0  # largest value tried
    scale: Literal["linear", "log"] = "linear"  # on which its values are equally likely
    points: int = Field(4, ge=2, le=1000)  # values of a range in a grid search
    choices: tuple[Any, ...] | None = None  # the values to try, in place of a range
    # in place of a range, of a setting that is a text of whole numbers: how many values, from 0, each of them has
    numbers: tuple[int, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _shorthand(cls, value: Any) -> Any:
        """Accept a list such as `[0, 0.25, 0.5]`, or `{low: 1e-4, high: 1e-1, scale: log}`."""
        if isinstance(value, list | tuple):
            return {"choices": value}

        if isinstance(value, Mapping):
            instead = "choices" in value or "numbers" in value
            missing = [key for key in ("low", "high") if key not in value and not instead]
            if missing:
                raise ValueError(f"has no `{missing[0]}`; write {{low: …, high: …}} or a list of choices")
            return value

        raise ValueError("should be {low: …, high: …, scale: log | linear} or a list of choices")

    @model_validator(mode="after")
    def _not_empty(self) -> Dimension:
        if self.numbers is not None:
            if not self.numbers or min(self.numbers) < 1:
                raise ValueError("`numbers` says how many values each number has, at least 1")
        elif self.choices is not None:
            if not self.choices:
                raise ValueError("the list of choices is empty")
            if len({json.dumps(choice, default=str) for choice in self.choices}) < len(self.choices):
                raise ValueError("a choice appears twice")
        elif not self.low < self.high:
            raise ValueError(f"the range from {self.low:g} to {self.high:g} is empty; low must lie below high")
        elif self.scale == "log" and self.low <= 0:
            raise ValueError(f"a range on a log scale starts above 0, not at {self.low:g}")
        return self

    @classmethod
    def of_knob(cls, search: Sequence[Any]) -> Dimension:
        """Build the dimension of a knob's default range: (low, high, "log" | "linear"), or choices."""
        if len(search) == 3 and search[2] in ("log", "linear"):
            return cls.model_validate({"low": search[0], "high": search[1], "scale": search[2]})
        return cls.model_validate(list(search))

    def at(self, unit: float, as_integer: bool = False) -> Any:
        """Return the value at a position of the range, to six digits.

        Args:
            unit: The position in [0, 1).
            as_integer: Whether the value is an integer; all integers of the range are equally likely then.
        """
        if self.numbers is not None:
            draws = random.Random(unit)
            return " ".join(str(draws.randrange(count)) for count in self.numbers)
        if self.choices is not None:
            return self.choices[int(unit * len(self.choices))]

        low, high = (self.low - 0.5, self.high + 0.5) if as_integer else (self.low, self.high)

        if self.scale == "log":
            value = math.exp(math.log(low) + unit * (math.log(high) - math.log(low)))
        else:
            value = low + unit * (high - low)
        return min(int(self.high), max(int(self.low), round(value))) if as_integer else float(f"{value:.6g}")

    def holds(self, value: Any, as_integer: bool = False) -> bool:
        """Return whether a trial may have this value: an earlier one was drawn from another range, perhaps."""
        if self.choices is not None:
            return any(
                value == choice and isinstance(value, bool) == isinstance(choice, bool) for choice in self.choices
            )
        if self.numbers is not None:
            parts = value.split() if isinstance(value, str) else []
            return len(parts) == len(self.numbers) and all(
                part.isdecimal() and int(part) < count for part, count in zip(parts, self.numbers, strict=True)
            )
        if isinstance(value, bool) or not isinstance(value, int | float) or (as_integer and value != round(value)):
            return False
        return float(f"{self.low:.6g}") <= value <= float(f"{self.high:.6g}")  # values have six digits

    def size(self, as_integer: bool = False) -> float:
        """Return how many values there are; infinity for a range of numbers that are no integers."""
        if self.numbers is not None:
            return math.prod(self.numbers)
        if self.choices is not None:
            return len(self.choices)
        return math.floor(self.high) - math.ceil(self.low) + 1 if as_integer else math.inf

    def levels(self, as_integer: bool = False) -> list[Any]:
        """Return the values of a grid search, both ends included; for a text of numbers only its ends.

        Args:
            as_integer: Whether values are rounded to integers; each appears once.
        """
        if self.numbers is not None:
            return self.ends()
        if self.choices is not None:
            return list(self.choices)

        ends = (math.log(self.low), math.log(self.high)) if self.scale == "log" else (self.low, self.high)
        positions = [ends[0] + (ends[1] - ends[0]) * i / (self.points - 1) for i in range(self.points)]
        values = [float(f"{math.exp(position) if self.scale == 'log' else position:.6g}") for position in positions]
        return list(dict.fromkeys(round(value) for value in values)) if as_integer else values

    def ends(self) -> list[Any]:
        """Return the values that have to be admissible for every value of the dimension to be."""
        if self.numbers is not None:
            return [" ".join("0" for _ in self.numbers), " ".join(str(count - 1) for count in self.numbers)]
        return list(self.choices) if self.choices is not None else [self.low, self.high]


# The space that every method searches if the experiment names none.
COMMON = {
    "training.lr": Dimension(low=1e-4, high=3e-2, scale="log"),
    "training.weight_decay": Dimension(low=1e-6, high=1e-2, scale="log"),
    "model.dropout": Dimension(choices=(0.0, 0.25, 0.5)),
}


class SearchSpec(Model):
    """Hyper-parameter search: every method gets `budget` trials over the common space and its own knobs."""

    budget: int = Field(32, ge=1, le=MOST_TRIALS)  # trials per method and data set
    algorithm: Literal["random", "grid", "optuna", "nsga2"] = "random"  # how settings are drawn
    # of nsga2: metrics (means over tasks on validation), figures of an `evaluation`, `loss`, `parameters`
    objectives: tuple[str, ...] = ()
    population: int = Field(16, ge=2)  # of nsga2: trials of a generation
    scheduler: Literal["none", "asha", "median", "pbt"] = "none"  # ends or changes trials before their last epoch
    # what a trial of Ray Tune is: many small ones as one batched model (auto: where that pays), or one by one (tune)
    executor: Literal["auto", "batched", "tune"] = "auto"
    seed: int = 1000  # of the sampling, and the training seed of all trials
    metric: Annotated[str | None, OfValidation] = None  # mean over tasks on validation; default: what chooses the epoch
    space: dict[str, Dimension] = COMMON  # dotted setting -> what every method tries of it
    # settings of training that trials have instead, such as fewer epochs
    training: dict[str, Any] = Field(default_factory=dict)
    # label -> its own knobs; default: the ranges of `mtlscale list`
    methods: dict[str, dict[str, Dimension]] = Field(default_factory=dict)
    grace: int = Field(4, ge=1)  # epochs before a scheduler may end a trial
    interval: int = Field(4, ge=1)  # epochs between two exchanges of pbt

    @property
    def ledger(self) -> str:
        """The file of the trials' records.

        A trial that a scheduler may end early is no complete run, so such searches have a ledger of their own.
        """
        return f"trials-{self.algorithm}-{self.scheduler}.jsonl" if self.adaptive else "trials.jsonl"

    @property
    def adaptive(self) -> bool:
        """Return whether a trial depends on the results of other trials."""
        return self.algorithm in ("optuna", "nsga2") or self.scheduler != "none"

    def check_installed(self) -> None:
        if self.algorithm == "optuna" and importlib.util.find_spec("optuna") is None:
            raise UserError("search.algorithm optuna needs the package optuna; pip install optuna")
        if self.algorithm == "nsga2" and importlib.util.find_spec("pymoo") is None:
            raise UserError("search.algorithm nsga2 needs the package pymoo; pip install 'mtlscale[nas]'")


def split_path(path: str) -> tuple[str, str]:
    """Split a dotted setting: "model.encoder.dropout" -> ("model.encoder", "dropout")."""
    part, _, knob = path.rpartition(".")
    return part, knob
