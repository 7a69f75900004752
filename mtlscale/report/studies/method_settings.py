"""Sensitivity to a number in a method's settings, such as λ or the batch: scores of otherwise equal methods."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyles, line_styles
from mtlscale.report.charts.plotly_canvas import lines_with_intervals
from mtlscale.report.formats.number_format import counted
from mtlscale.report.formats.sheet import Sheet, text_sheet
from mtlscale.report.stats.statistics import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

FEWEST = 3  # fewest values that make a curve
_OF_METHODS = ("objective", "balancer", "architecture", "encoder", "training")
_LOG_AXIS_RATIO = 8.0  # largest over smallest value from which an axis is logarithmic
_NO_SETTINGS = ("results_version", "head", "seed")


@dataclass(frozen=True)
class Setting:
    """The scores of methods by one of their settings.

    Attributes:
        lines: Line -> rows of `x` (the setting's value), `test` and `val` (means over data sets and seeds), `ci` (half
            the 95 % interval of test over seeds), by x.
        level: The mean on test of the reference, which has no such setting.
    """

    name: str  # such as objective.strength
    metric: str
    higher: bool
    datasets: int
    reference: str
    level: float
    lines: Mapping[str, pd.DataFrame]

    @property
    def short(self) -> str:
        return self.name.partition(".")[2]

    @property
    def title(self) -> str:
        over = f", mean over {counted(self.datasets, 'data set')}" if self.datasets > 1 else ""
        return f"{self.metric} by {self.short.replace('_', ' ')}{over}"

    @property
    def file(self) -> str:
        return f"by_setting_{re.sub(r'[^0-9A-Za-z.-]+', '_', self.name)}"

    @property
    def logarithmic(self) -> bool:
        values = np.concatenate([rows["x"] for rows in self.lines.values()])
        return bool(values.min() > 0 and values.max() / values.min() >= _LOG_AXIS_RATIO)


def settings(records: Sequence[RunRecord], reference: str | None) -> Iterator[Setting]:
    """Yield a `Setting` for each number in which several methods differ and in nothing else; of the newest runs."""
    finished = [record for record in records if record.status == "finished" and record.metrics.get("test")]
    metrics = {record.shared_metric for record in finished}
    if len(metrics) != 1 or (metric := metrics.pop()) is None:
        return

    datasets = {record.dataset for record in finished}
    numbers = {method: _numbers(runs) for method, runs in _by_method(finished).items()}

    higher = finished[0].higher_is_better[metric]
    scores = {method: _scores(runs, metric, datasets) for method, runs in _by_method(finished).items()}
    level = scores[reference][1].mean() if reference in scores else np.nan

    names = {name for _, method_numbers in numbers.values() for name in method_numbers}
    for name in sorted(names, key=lambda name: (_OF_METHODS.index(name.partition(".")[0]), name)):
        groups: dict[str, dict[float, str]] = {}
        for method, (spec, method_numbers) in numbers.items():
            if name in method_numbers and len(scores[method][1]):
                shared_settings = json.dumps(
                    [spec, {key: value for key, value in method_numbers.items() if key != name}], sort_keys=True
                )
                groups.setdefault(shared_settings, {}).setdefault(method_numbers[name], method)

        lines: dict[str, pd.DataFrame] = {}
        for methods in groups.values():
            if len(methods) >= FEWEST:
                lines[_line(list(methods.values()), lines)] = _setting_rows(methods, scores)

        if lines:
            yield Setting(name, metric, higher, len(datasets), reference or "", level, lines)


def _by_method(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    runs_by_method: dict[str, list[RunRecord]] = {}
    for record in records:
        runs_by_method.setdefault(record.method, []).append(record)
    return runs_by_method


def _numbers(runs: Sequence[RunRecord]) -> tuple[str, dict[str, float]]:
    """Return a method's settings: those that are no numbers as text, and the numbers by name.

    Runs of several data sets have them alike, or the method has none.
    """
    setting_texts = {
        json.dumps([run.spec.get(part) for part in _OF_METHODS], sort_keys=True, default=str) for run in runs
    }
    if len(setting_texts) > 1:
        return "", {}

    numbers: dict[str, float] = {}
    other_settings: dict[str, Any] = {}
    for part in _OF_METHODS:
        part_settings = runs[0].spec.get(part)
        for key, value in part_settings.items() if isinstance(part_settings, dict) else ():
            number = isinstance(value, int | float) and not isinstance(value, bool) and key not in _NO_SETTINGS
            (numbers if number else other_settings)[f"{part}.{key}"] = value

    return json.dumps(other_settings, sort_keys=True, default=str), numbers


def _scores(runs: Sequence[RunRecord], metric: str, datasets: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return scores [seeds] on val and on test: means over tasks and data sets, of seeds that finished on all."""
    seed_scores: dict[int, dict[str, tuple[float, float]]] = {}
    for run in runs:
        seed_scores.setdefault(run.seed, {})[run.dataset] = (_mean(run, "val", metric), _mean(run, "test", metric))

    complete_means = [
        np.mean(list(seed_scores[seed].values()), axis=0)
        for seed in sorted(seed_scores)
        if set(seed_scores[seed]) == datasets
    ]
    stacked = np.array(complete_means).reshape(-1, 2)
    return stacked[:, 0], stacked[:, 1]


def _mean(run: RunRecord, split: str, metric: str) -> float:
    """Return the mean over tasks; NaN where a task has no value."""
    values = [run.metrics.get(split, {}).get(task, {}).get(metric, np.nan) for task in run.main_metrics]
    return float(np.mean(values))


def _setting_rows(methods: Mapping[float, str], scores: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    rows = []
    for value, method in sorted(methods.items()):
        val, test = scores[method]
        deviation = test.std(ddof=1) if len(test) > 1 else np.nan
        rows.append((float(value), test.mean(), val.mean(), float(half_width(deviation, len(test)))))
    return pd.DataFrame(rows, columns=["x", "test", "val", "ci"])


def _line(methods: Sequence[str], settings: Mapping[str, object]) -> str:
    """Return the words that the labels of a line's methods begin with alike, or the first label."""
    words = zip(*(method.split() for method in methods), strict=False)
    common_words = " ".join(
        position_words[0] for position_words in takewhile(lambda position_words: len(set(position_words)) == 1, words)
    )
    return methods[0] if not common_words or common_words in settings else common_words


def setting_table(setting: Setting) -> Sheet:
    """Return the scores in figures: a row per line, a column per value."""
    values = sorted(set(np.concatenate([rows["x"] for rows in setting.lines.values()])))
    table_rows = []
    for line, rows in setting.lines.items():
        texts = {
            x: f"{test:.2f}" if np.isnan(ci) else f"{test:.2f} ± {ci:.2f}"
            for x, test, ci in rows[["x", "test", "ci"]].itertuples(index=False)
        }
        table_rows.append((line, *(texts.get(value, "–") for value in values)))

    reference_text = f"; {setting.reference}: {setting.level:.2f}" if not np.isnan(setting.level) else ""
    explanation = f"Test, mean over seeds, with half the 95 % interval over them{reference_text}."
    return text_sheet(
        setting.title, explanation, (setting.short, *(f"{value:g}" for value in values)), tuple(table_rows)
    )


def sentences(setting: Setting) -> Iterator[str]:
    """Yield for each line the value that validation would choose, and the best on test, which nobody knows."""
    sign = 1.0 if setting.higher else -1.0
    for line, rows in setting.lines.items():
        best = rows.iloc[int((sign * rows["test"]).to_numpy().argmax())]
        sentence = f"{line}: best on test at {best['x']:g} ({best['test']:.2f})"
        if rows["val"].notna().all():
            chosen = rows.iloc[int((sign * rows["val"]).to_numpy().argmax())]
            sentence += f"; validation chooses {chosen['x']:g} ({chosen['test']:.2f} on test)"
        yield f"{sentence}."


def setting_figure(setting: Setting, styles: LineStyles | None = None) -> Drawing:
    """Draw a line with its intervals over the setting's values, and the reference as a level."""
    with style():
        figure = new_figure(6.4, 3.8)
        axis = figure.subplots()
        for line, rows in _drawn_lines(setting).items():
            look = _setting_styles(setting, styles)[line]
            shape = {"color": look.color, "marker": look.marker, "linestyle": look.line}
            axis.errorbar(rows["x"], rows["test"], yerr=rows["ci"].fillna(0.0), label=line, capsize=2.5, **shape)

        if not np.isnan(setting.level):
            axis.axhline(setting.level, color=GREY, linewidth=0.9, linestyle="--", zorder=0, label=setting.reference)

        values = sorted({x for rows in setting.lines.values() for x in rows["x"]})
        if setting.logarithmic:
            axis.set_xscale("log")
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xticks([], minor=True)

        axis.set_xlabel(setting.short.replace("_", " "))
        axis.set_ylabel(setting.title.partition(" by ")[0])
        figure.legend(loc="outside lower center", frameon=False, ncols=4)
    return figure


def setting_plot(setting: Setting, styles: LineStyles | None = None) -> Figure:
    """Draw the same chart for the page."""
    figure = lines_with_intervals(
        {"": _drawn_lines(setting)}, "test", _setting_styles(setting, styles), setting.short.replace("_", " ")
    )

    values = sorted({x for rows in setting.lines.values() for x in rows["x"]})
    figure.update_xaxes(tickvals=values, ticktext=[f"{value:g}" for value in values])
    if setting.logarithmic:
        figure.update_xaxes(type="log")

    if not np.isnan(setting.level):
        figure.add_scatter(
            x=[values[0], values[-1]],
            y=[setting.level] * 2,
            mode="lines",
            name=setting.reference,
            line={"color": GREY, "dash": "dash"},
        )

    return figure


def _drawn_lines(setting: Setting) -> dict[str, pd.DataFrame]:
    return dict(list(setting.lines.items())[:MOST_LINES])


def _setting_styles(setting: Setting, styles: LineStyles | None) -> dict[str, Any]:
    return {**line_styles(list(setting.lines)), **(styles or {})}
