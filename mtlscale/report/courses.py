"""What a number does that differs between data sets of one pipeline, such as a source's size: Δ against it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.canvas import MOST_LINES, new_figure, style
from mtlscale.report.colors import GREY, Look, Looks, looks
from mtlscale.report.facts import Facts
from mtlscale.report.frames import by_dataset, newest
from mtlscale.report.learning import SHARE
from mtlscale.report.plotly_canvas import lines_with_intervals

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.table import Table

FEWEST = 3  # values that make a course
_DRAWS = ("name", "seed", "split", "task_metrics")  # what tells data sets apart that should be alike
_APART = 10.0  # largest over smallest value from which the axis is logarithmic


@dataclass(frozen=True)
class Course:
    """Δ over `over`, an option of the data set or the encoder: panel -> line -> rows of `x`, `gain`, `ci`, by x."""

    pipeline: str
    baseline: str
    over: str
    panels: Mapping[str, Mapping[str, pd.DataFrame]]

    @property
    def title(self) -> str:
        return f"Δ over {self.baseline}, %, by {self.over}"

    @property
    def file(self) -> str:
        return f"by_{re.sub(r'[^0-9A-Za-z.-]+', '_', f'{self.over}_{self.pipeline}')}"

    @property
    def logarithmic(self) -> bool:
        values = np.concatenate([rows["x"] for lines in self.panels.values() for rows in lines.values()])
        return bool(values.min() > 0 and values.max() / values.min() >= _APART)


def courses(records: Sequence[RunRecord], tables: Mapping[str, Table]) -> Iterator[Course]:
    """One for each pipeline whose data sets differ in a number that has several values.

    The number with the most values is the axis. Of what else differs the last has a panel for each value, the others
    and the methods have lines.
    """
    pipelines: dict[str, dict[str, dict[str, Any]]] = {}
    for dataset, runs in by_dataset(newest(records)).items():
        if tables[dataset].baseline is not None and "name" in (first := runs[0].spec.get("dataset", {})):
            share = first.get(SHARE, 1.0)  # of shares there are learning curves
            name = str(first["name"]) if share == 1 else f"{first['name']} {share}"
            pipelines.setdefault(name, {})[dataset] = _settings(runs)
    for pipeline, settings in pipelines.items():
        differing = _differing(list(settings.values()))
        counts = {name: len(set(values)) for name, values in differing.items() if all(map(_is_number, values))}
        over = max(counts, key=lambda name: counts[name], default="")
        if counts.get(over, 0) < FEWEST:
            continue
        *others, panel = [name for name in differing if name != over] or [""]
        panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
        for dataset, own in settings.items():
            table = tables[dataset]
            rows = table.rows.drop(index=table.baseline)
            for method, row in rows[rows["delta_i"].notna()].iterrows():
                line = ", ".join([str(method), *(f"{name}: {own[name]}" for name in others)])
                lines = panels.setdefault(f"{panel}: {own[panel]}" if panel else "", {})
                lines.setdefault(line, []).append((float(own[over]), row["delta_i"], row["delta_i_ci"]))
        found = {title: {line: _frame(rows) for line, rows in lines.items()} for title, lines in panels.items()}
        if any(len(rows) >= FEWEST for lines in found.values() for rows in lines.values()):
            baseline = str(next(tables[dataset].baseline for dataset in settings))
            yield Course(pipeline, baseline, over, found)


def _settings(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Options of data set and encoder that all runs on a data set have alike; a list of one entry is that entry."""
    specs = [{**run.spec.get("dataset", {}), **run.spec.get("encoder", {})} for run in runs]
    alike = {name: value for name, value in specs[0].items() if all(spec.get(name) == value for spec in specs)}
    single = {name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in alike.items()}
    named = {name: value for name, value in single.items() if name not in _DRAWS}
    return {name: value for name, value in named.items() if isinstance(value, int | float | str)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Option -> its value in each data set, of those that differ; of several that go together the first, a name rather
    than a number."""
    found: dict[str, list[Any]] = {}
    patterns = set()
    known = [name for name in settings[0] if all(name in own for own in settings)]
    for name in sorted(known, key=lambda name: _is_number(settings[0][name])):
        values = [own[name] for own in settings]
        pattern = tuple(values.index(value) for value in values)
        if len(set(pattern)) > 1 and pattern not in patterns:
            patterns.add(pattern)
            found[name] = values
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _frame(rows: Sequence[tuple[float, float, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["x", "gain", "ci"]).sort_values("x", ignore_index=True)


def course_table(course: Course) -> Facts:
    """The same in figures: a row per line, a column per value."""
    everything = [rows["x"] for lines in course.panels.values() for rows in lines.values()]
    values = sorted(set(np.concatenate(everything)))
    rows = []
    for panel, lines in course.panels.items():
        for line, frame in lines.items():
            told = {x: _text(gain, ci) for x, gain, ci in frame.itertuples(index=False)}
            rows.append((f"{line}, {panel}" if panel else line, *(told.get(value, "–") for value in values)))
    what = f"Mean over seeds, with half the 95 % interval; positive is better than {course.baseline}."
    return Facts(course.title, what, (course.over, *(f"{value:g}" for value in values)), tuple(rows))


def sentences(course: Course) -> Iterator[str]:
    """For each line, where its interval lies on one side of 0."""
    for panel, lines in course.panels.items():
        for line, rows in lines.items():
            ends = {"better": rows["x"][rows["gain"] > rows["ci"]], "worse": rows["x"][-rows["gain"] > rows["ci"]]}
            told = [f"{word} than {course.baseline} at {_values(found)}" for word, found in ends.items() if len(found)]
            name = f"{line}, {panel}" if panel else line
            yield f"{name}: {' and '.join(told) or 'no interval lies on one side of 0'}."


def _values(found: pd.Series[float]) -> str:
    return ", ".join(f"{value:g}" for value in found)


def _text(gain: float, ci: float) -> str:
    return f"{gain:+.1f}" if np.isnan(ci) else f"{gain:+.1f} ± {ci:.1f}"


def course_figure(course: Course, shown: Looks | None = None) -> Drawing:
    """A panel beside the other, a line with its intervals each."""
    shown = _looks(course, shown or {})
    with style():
        figure = new_figure(1.8 + 3.8 * len(course.panels), 3.4)
        axes = figure.subplots(1, len(course.panels), squeeze=False, sharey=True)[0]
        for panel, (title, lines) in zip(axes, course.panels.items(), strict=True):
            for line, rows in list(lines.items())[:MOST_LINES]:
                widths = rows["ci"].fillna(0.0)
                panel.errorbar(
                    rows["x"],
                    rows["gain"],
                    yerr=widths,
                    label=line,
                    color=shown[line].color,
                    linestyle=shown[line].line,
                    marker=shown[line].marker,
                    capsize=2.5,
                )
            panel.axhline(0.0, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
            if course.logarithmic:
                panel.set_xscale("log")
                panel.xaxis.set_major_formatter("{x:g}")
            panel.set_xlabel(course.over)
            panel.set_title(title)
        axes[0].set_ylabel(f"Δ over {course.baseline}, %")
        handles = {text: one for axis in axes for one, text in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", frameon=False, ncols=2)
    return figure


def course_plot(course: Course, shown: Looks | None = None) -> Figure:
    """The same for the page."""
    panels = {title: dict(list(lines.items())[:MOST_LINES]) for title, lines in course.panels.items()}
    figure = lines_with_intervals(panels, "gain", _looks(course, shown or {}), course.over)
    if course.logarithmic:
        figure.update_xaxes(type="log")
    return figure


def _looks(course: Course, shown: Looks) -> dict[str, Look]:
    """Methods look as everywhere; lines of a method and something else have looks of their own."""
    lines = list(dict.fromkeys(line for panel in course.panels.values() for line in panel))
    return {**looks(lines), **{line: shown[line] for line in lines if line in shown}}
