"""Optuna study of one method's search, and Optuna's charts of it with the chosen trial marked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mtlscale.config import Dimension, Knobs
from mtlscale.records import RunRecord, best, score
from mtlscale.report.charts.plotly_canvas import label
from mtlscale.report.sweeps.search_front import trial_front_plot

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FEWEST = 4  # finished trials from which importance is worth computing
EDGE_FRACTION = 0.05  # of a range, from its end
MAX_COLUMNS = 4  # settings beside each other in a picture
WINNER_COLOR = "#d76f04"


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

    def figures(self) -> Iterator[tuple[str, str, Figure]]:
        """Yield (title, explanation, figure); nothing where no trial finished or nothing was searched."""
        from optuna import visualization

        if self.winner is None:
            return
        chosen = self.trials.index(self.winner)

        if self.objectives:
            explanation = (
                "Trials by all that was searched for, on validation; filled: no other is as good in all of it and "
            )
            explanation += "better in some; ringed is the chosen trial."
            yield "Pareto front", explanation, trial_front_plot(self.trials, self.objectives, chosen, WINNER_COLOR)

        if not self.space:
            return

        names = [short(path) for path in self.space]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about charts that Optuna calls experimental
            for start in range(0, len(names), MAX_COLUMNS):
                part = names[start : start + MAX_COLUMNS]
                figure = visualization.plot_slice(self.study, part, target_name="score")
                yield (
                    "Slices",
                    "The score against each setting alone; ringed is the chosen trial.",
                    self._slices(figure),
                )

            if len(self.importance) > 1:
                figure = visualization.plot_param_importances(self.study, params=list(self.importance))
                explanation = "Share of each setting in the variance of the score."
                figure = _plain(figure, 110 + 34 * len(self.importance)).update_layout(
                    xaxis_title=None, yaxis_title=None
                )
                yield "Importance", explanation, figure.update_traces(marker_color="#4390ee")

            if len(names) > 1:
                figure = visualization.plot_parallel_coordinate(self.study, target_name="score")
                explanation = "A line for each trial through its settings; thick is the chosen trial."
                yield "Parallel coordinates", explanation, self._thick(_plain(figure, 340))

            figure = _plain(visualization.plot_optimization_history(self.study, target_name="score"), 280)
            figure.add_scatter(x=[chosen], y=[self.scores[chosen]], **_RING)
            yield "History", "The score of one trial after the other, and the best so far.", figure

    def _slices(self, figure: Figure) -> Figure:
        assert self.winner is not None
        best_score = self.scores[self.trials.index(self.winner)]

        for trace in list(figure.data):
            trace.marker.update(colorscale=[[0, "#79a8ec"], [1, "#1b6cc7"]], showscale=False)
            trace.hovertemplate = "trial %{marker.color}: %{y:.4g} at %{x}<extra></extra>"
            if best_score not in trace.y:
                continue
            chosen_at = next(
                point_index
                for point_index, trial in enumerate(trace.marker.color)
                if self.trials[int(trial)] is self.winner
            )
            figure.add_scatter(x=[trace.x[chosen_at]], y=[best_score], xaxis=trace.xaxis, yaxis=trace.yaxis, **_RING)

        return _plain(figure, 300)

    def _thick(self, figure: Figure) -> Figure:
        """Thicken the line of the chosen trial: of those that end highest, the one with its settings."""
        assert self.winner is not None
        values = {short(path): self.winner.trial[path] for path in self.space}
        setting_texts = {(name, f"{v:.3g}" if isinstance(v, float) else str(v)) for name, v in values.items()}

        lines = [trace for trace in figure.data if trace.mode == "lines" and trace.customdata is not None]
        for line in lines:
            line.update(meta="aside", line={"color": "#4390ee", "width": 1.2})
        figure.update_traces(marker_showscale=False)

        chosen_line = max(
            lines,
            key=lambda line: (
                line.y[0],
                len(setting_texts & {tuple(map(str, setting)) for setting in line.customdata}),
            ),
        )
        chosen_line.update(line={"color": WINNER_COLOR, "width": 3}, opacity=1.0)
        return figure


_RING: dict[str, Any] = {
    "mode": "markers",
    "marker": {"size": 16, "symbol": "circle-open", "color": WINNER_COLOR, "line": {"width": 3}},
    "name": "chosen",
    "showlegend": False,
    "hoverinfo": "skip",
}


def _plain(figure: Figure, height: int) -> Figure:
    """Restyle a figure for the page: its title stands above, its colours are the page's; names are escaped."""
    figure.update_layout(template="none", title=None, height=height, margin={"l": 10, "r": 16, "t": 16, "b": 30})
    figure.update_layout(showlegend=False, width=None)
    figure.update_xaxes(automargin=True, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False)
    figure.for_each_annotation(lambda one: one.update(font={"color": None}))

    for axis in figure.select_xaxes():
        if axis.title.text:
            axis.title.text = label(axis.title.text)
        if axis.ticktext is not None:
            axis.ticktext = [label(text) for text in axis.ticktext]

    return figure


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
