"""What a number in a method's settings does, such as λ or the batch: scores of methods that differ in nothing else."""

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
from mtlscale.report.canvas import MOST_LINES, new_figure, style
from mtlscale.report.colors import GREY, Looks, looks
from mtlscale.report.facts import Facts
from mtlscale.report.plotly_canvas import lines_with_intervals
from mtlscale.report.statistics import half_width
from mtlscale.report.texts import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

FEWEST = 3  # values that make a curve
_OF_METHODS = ("objective", "balancer", "architecture", "encoder", "training")
_APART = 8.0  # largest over smallest value from which an axis is logarithmic
_NO_SETTINGS = ("results_version", "head", "seed")


@dataclass(frozen=True)
class Setting:
    """One setting: line -> rows of `x` (its value), `test` and `val` (means over data sets and seeds), `ci` (half the
    95 % interval of test over seeds), by x. level: mean of the reference on test, which has no such setting."""

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
        return bool(values.min() > 0 and values.max() / values.min() >= _APART)


def settings(records: Sequence[RunRecord], reference: str | None) -> Iterator[Setting]:
    """One for each number in which several methods differ and in nothing else; of the newest runs."""
    done = [record for record in records if record.status == "finished" and record.metrics.get("test")]
    metrics = {record.shared_metric for record in done}
    if len(metrics) != 1 or (metric := metrics.pop()) is None:
        return
    datasets = {record.dataset for record in done}
    numbers = {method: _numbers(runs) for method, runs in _by_method(done).items()}
    higher = done[0].higher_is_better[metric]
    scores = {method: _scores(runs, metric, datasets) for method, runs in _by_method(done).items()}
    level = scores[reference][1].mean() if reference in scores else np.nan
    names = {name for _, own in numbers.values() for name in own}
    for name in sorted(names, key=lambda name: (_OF_METHODS.index(name.partition(".")[0]), name)):
        groups: dict[str, dict[float, str]] = {}
        for method, (spec, own) in numbers.items():
            if name in own and len(scores[method][1]):
                rest = json.dumps([spec, {key: value for key, value in own.items() if key != name}], sort_keys=True)
                groups.setdefault(rest, {}).setdefault(own[name], method)
        lines: dict[str, pd.DataFrame] = {}
        for methods in groups.values():
            if len(methods) >= FEWEST:
                lines[_line(list(methods.values()), lines)] = _rows(methods, scores)
        if lines:
            yield Setting(name, metric, higher, len(datasets), reference or "", level, lines)


def _by_method(records: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    found: dict[str, list[RunRecord]] = {}
    for record in records:
        found.setdefault(record.method, []).append(record)
    return found


def _numbers(runs: Sequence[RunRecord]) -> tuple[str, dict[str, float]]:
    """A method's settings: what is no number as text, and the numbers by name. Runs of several data sets have them
    alike, or the method has none."""
    found = {json.dumps([run.spec.get(part) for part in _OF_METHODS], sort_keys=True, default=str) for run in runs}
    if len(found) > 1:
        return "", {}
    numbers: dict[str, float] = {}
    others: dict[str, Any] = {}
    for part in _OF_METHODS:
        of = runs[0].spec.get(part)
        for key, value in of.items() if isinstance(of, dict) else ():
            number = isinstance(value, int | float) and not isinstance(value, bool) and key not in _NO_SETTINGS
            (numbers if number else others)[f"{part}.{key}"] = value
    return json.dumps(others, sort_keys=True, default=str), numbers


def _scores(runs: Sequence[RunRecord], metric: str, datasets: set[str]) -> tuple[np.ndarray, np.ndarray]:
    """[seeds] on val and on test: the mean over tasks and data sets, of seeds that are over on all of them."""
    of: dict[int, dict[str, tuple[float, float]]] = {}
    for run in runs:
        of.setdefault(run.seed, {})[run.dataset] = (_mean(run, "val", metric), _mean(run, "test", metric))
    whole = [np.mean(list(of[seed].values()), axis=0) for seed in sorted(of) if set(of[seed]) == datasets]
    stacked = np.array(whole).reshape(-1, 2)
    return stacked[:, 0], stacked[:, 1]


def _mean(run: RunRecord, split: str, metric: str) -> float:
    """Over tasks; NaN where one has none."""
    values = [run.metrics.get(split, {}).get(task, {}).get(metric, np.nan) for task in run.main_metrics]
    return float(np.mean(values))


def _rows(methods: Mapping[float, str], scores: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
    rows = []
    for value, method in sorted(methods.items()):
        val, test = scores[method]
        deviation = test.std(ddof=1) if len(test) > 1 else np.nan
        rows.append((float(value), test.mean(), val.mean(), float(half_width(deviation, len(test)))))
    return pd.DataFrame(rows, columns=["x", "test", "val", "ci"])


def _line(methods: Sequence[str], taken: Mapping[str, object]) -> str:
    """The words that the labels of a line's methods begin with alike, or the first label."""
    words = zip(*(method.split() for method in methods), strict=False)
    alike = " ".join(found[0] for found in takewhile(lambda found: len(set(found)) == 1, words))
    return methods[0] if not alike or alike in taken else alike


def setting_table(of: Setting) -> Facts:
    """The same in figures: a row per line, a column per value."""
    values = sorted(set(np.concatenate([rows["x"] for rows in of.lines.values()])))
    found = []
    for line, rows in of.lines.items():
        told = {
            x: f"{test:.2f}" if np.isnan(ci) else f"{test:.2f} ± {ci:.2f}"
            for x, test, ci in rows[["x", "test", "ci"]].itertuples(index=False)
        }
        found.append((line, *(told.get(value, "–") for value in values)))
    beside = f"; {of.reference}: {of.level:.2f}" if not np.isnan(of.level) else ""
    what = f"Test, mean over seeds, with half the 95 % interval over them{beside}."
    return Facts(of.title, what, (of.short, *(f"{value:g}" for value in values)), tuple(found))


def sentences(of: Setting) -> Iterator[str]:
    """For each line the value that validation would choose, and the one that is best on test, which nobody knows."""
    sign = 1.0 if of.higher else -1.0
    for line, rows in of.lines.items():
        best = rows.iloc[int((sign * rows["test"]).to_numpy().argmax())]
        told = f"{line}: best on test at {best['x']:g} ({best['test']:.2f})"
        if rows["val"].notna().all():
            chosen = rows.iloc[int((sign * rows["val"]).to_numpy().argmax())]
            told += f"; validation chooses {chosen['x']:g} ({chosen['test']:.2f} on test)"
        yield f"{told}."


def setting_figure(of: Setting, shown: Looks | None = None) -> Drawing:
    """A line with its intervals over the setting's values, the reference as a level."""
    with style():
        figure = new_figure(6.4, 3.8)
        axis = figure.subplots()
        for line, rows in _drawn(of).items():
            look = _looks(of, shown)[line]
            shape = {"color": look.color, "marker": look.marker, "linestyle": look.line}
            axis.errorbar(rows["x"], rows["test"], yerr=rows["ci"].fillna(0.0), label=line, capsize=2.5, **shape)
        if not np.isnan(of.level):
            axis.axhline(of.level, color=GREY, linewidth=0.9, linestyle="--", zorder=0, label=of.reference)
        values = sorted({x for rows in of.lines.values() for x in rows["x"]})
        if of.logarithmic:
            axis.set_xscale("log")
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xticks([], minor=True)
        axis.set_xlabel(of.short.replace("_", " "))
        axis.set_ylabel(of.title.partition(" by ")[0])
        figure.legend(loc="outside lower center", frameon=False, ncols=4)
    return figure


def setting_plot(of: Setting, shown: Looks | None = None) -> Figure:
    """The same for the page."""
    figure = lines_with_intervals({"": _drawn(of)}, "test", _looks(of, shown), of.short.replace("_", " "))
    values = sorted({x for rows in of.lines.values() for x in rows["x"]})
    figure.update_xaxes(tickvals=values, ticktext=[f"{value:g}" for value in values])
    if of.logarithmic:
        figure.update_xaxes(type="log")
    if not np.isnan(of.level):
        figure.add_scatter(
            x=[values[0], values[-1]],
            y=[of.level] * 2,
            mode="lines",
            name=of.reference,
            line={"color": GREY, "dash": "dash"},
        )
    return figure


def _drawn(of: Setting) -> dict[str, pd.DataFrame]:
    return dict(list(of.lines.items())[:MOST_LINES])


def _looks(of: Setting, shown: Looks | None) -> dict[str, Any]:
    return {**looks(list(of.lines)), **(shown or {})}
