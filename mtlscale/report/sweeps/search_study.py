"""Search of one method: its trials, what was chosen, and the importance of settings by Optuna."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mtlscale.config import Dimension, Knobs
from mtlscale.records import RunRecord, best, score

FEWEST = 4  # finished trials from which importance is worth computing
EDGE_FRACTION = 0.05  # of a range, from its end


@dataclass(frozen=True)
class Searched:
    """The trials of a method on a data set, in the order they were tried, and the space they were drawn from."""

    dataset: str
    method: str
    trials: tuple[RunRecord, ...]
    space: Mapping[str, Dimension]
    metric: str | None
    objectives: tuple[str, ...] = ()  # of a search for several at once

    @cached_property
    def winner(self) -> RunRecord | None:
        return best(self.trials, self.metric)

    @cached_property
    def scores(self) -> list[float]:
        """The score of each trial; NaN where it has none."""
        trial_scores = [score(record, self.metric) for record in self.trials]
        return [
            math.nan if trial_score is None or not math.isfinite(trial_score[0]) else trial_score[0]
            for trial_score in trial_scores
        ]

    @property
    def finished(self) -> int:
        return sum(not math.isnan(value) for value in self.scores)

    @cached_property
    def study(self) -> Any:
        """The Optuna study of these trials, under the settings' short names."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.RandomSampler(seed=0))
        distributions = {short(path): _distribution(dimension) for path, dimension in self.space.items()}

        for record, value in zip(self.trials, self.scores, strict=True):
            if math.isnan(value):
                study.add_trial(optuna.create_trial(state=optuna.trial.TrialState.FAIL))
                continue
            params = {short(path): _value(dimension, record.trial[path]) for path, dimension in self.space.items()}
            study.add_trial(optuna.create_trial(params=params, distributions=distributions, value=value))

        return study

    @cached_property
    def importance(self) -> dict[str, float]:
        """The share of each setting in the variance of the score, as Optuna computes it, most important first.

        Empty where there are too few finished trials or all are equally good.
        """
        import optuna

        varied = [
            short(path)
            for path in self.space
            if len({str(r.trial[path]) for r, v in zip(self.trials, self.scores, strict=True) if not math.isnan(v)}) > 1
        ]

        if self.finished < FEWEST or not varied or len({v for v in self.scores if not math.isnan(v)}) < 2:
            return {}
        return dict(optuna.importance.get_param_importances(self.study, params=varied))

    def near_bounds(self) -> list[str]:
        """Return the notes on settings of the winner at the end of their range: a wider range may hold a better one.

        That is within a twentieth of the range from it, or at the smallest or largest of listed numbers.
        """
        if self.winner is None:
            return []
        notes = (
            _edge_text(path, self.space[path], value) for path, value in self.winner.trial.items() if path in self.space
        )
        return [note for note in notes if note]

    def sentence(self) -> str:
        if self.winner is None:
            cause = self.trials[0].error if self.trials else "there are none"
            return f"None of {len(self.trials)} trials finished: {cause}."
        index = self.trials.index(self.winner)
        text = f"{self.finished} of {len(self.trials)} trials finished. Chosen is trial {index}, with a score of "
        text += f"{self.scores[index]:.4g}: {settings_text(self.winner.trial) or 'as it is'}."
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.importance.items())
        return f"{text} Share in the variance of the score: {shares}." if len(self.importance) > 1 else text


def _edge_text(path: str, dimension: Dimension, value: Any) -> str:
    if dimension.choices is not None:
        numbers = [v for v in dimension.choices if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(numbers) < max(3, len(dimension.choices)) or value not in (min(numbers), max(numbers)):
            return ""
        end = "smallest" if value == min(numbers) else "largest"
        return f"{short(path)} {value:g} is the {end} of its {len(numbers)} choices."

    low, high, position = float(dimension.low), float(dimension.high), float(value)
    if dimension.scale == "log":
        low, high, position = math.log(low), math.log(high), math.log(position)

    share = (position - low) / (high - low) if high > low else 0.5
    if EDGE_FRACTION < share < 1 - EDGE_FRACTION:
        return ""
    end = "lower" if share <= EDGE_FRACTION else "upper"
    return f"{short(path)} {value:.3g} lies at the {end} end of its range, {dimension.low:g} to {dimension.high:g}."


def _distribution(dimension: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if dimension.choices is not None:
        return CategoricalDistribution([_value(dimension, choice) for choice in dimension.choices])
    return FloatDistribution(dimension.low, dimension.high, log=dimension.scale == "log")


def _value(dimension: Dimension, value: Any) -> Any:
    """Return a setting's value as Optuna takes it: lists and the like as text."""
    if dimension.choices is None:
        return float(value)
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def settings_text(knobs: Knobs) -> str:
    """Return settings in one line: `lr 0.003, balancer.eps 0.1`."""
    return ", ".join(f"{short(path)} {plain(value)}" for path, value in knobs.items())


def short(path: str) -> str:
    """Shorten a setting's path by its uninformative parts: `lr`, `dropout`, `encoder.dropout`, `balancer.lr`."""
    return path.removeprefix("training.").removeprefix("model.")


def plain(value: Any) -> str:
    """Format a setting's value, numbers in three digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def of_sweep(
    trials: Mapping[tuple[str, str], Sequence[RunRecord]],
    spaces: Mapping[tuple[str, str], Mapping[str, Dimension]],
    metric: str | None,
    objectives: tuple[str, ...] = (),
) -> list[Searched]:
    """Return the search of each data set and method that has one."""
    return [
        Searched(dataset, method, tuple(trials[dataset, method]), space, metric, objectives)
        for (dataset, method), space in spaces.items()
    ]
