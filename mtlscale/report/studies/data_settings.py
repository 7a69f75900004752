"""The effect of a number that differs between data sets of one pipeline, such as a source's size, on Δ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.charts.canvas import MOST_LINES, new_figure, style
from mtlscale.report.charts.colors import GREY, LineStyle, LineStyles, line_styles
from mtlscale.report.charts.plotly_canvas import lines_with_intervals
from mtlscale.report.formats.sheet import Sheet, text_sheet
from mtlscale.report.stats.frames import by_dataset, newest
from mtlscale.report.studies.learning import FRACTION_KEY

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

    from mtlscale.report.tables.table import Table

FEWEST = 3  # values that make a course
_DRAWS = ("name", "seed", "split", "task_metrics")  # options in which otherwise equal data sets may differ
_LOG_AXIS_RATIO = 10.0  # largest over smallest value from which the axis is logarithmic


@dataclass(frozen=True)
class Course:
    """The course of Δ over `over`, an option of the data set or the encoder.

    `panels`: title -> line -> rows of `x`, `gain`, `ci`, by x.
    """

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
        return bool(values.min() > 0 and values.max() / values.min() >= _LOG_AXIS_RATIO)


def courses(records: Sequence[RunRecord], tables: Mapping[str, Table]) -> Iterator[Course]:
    """Yield a course for each pipeline whose data sets differ in a number that has several values.

    The number with the most values is the axis. Of the other options that differ, the last has a panel for each value;
    the remaining ones and the methods have lines.
    """
    pipelines: dict[str, dict[str, dict[str, Any]]] = {}
    for dataset, runs in by_dataset(newest(records)).items():
        if tables[dataset].baseline is not None and "name" in (dataset_spec := runs[0].spec.get("dataset", {})):
            share = dataset_spec.get(FRACTION_KEY, 1.0)  # of shares there are learning curves
            name = str(dataset_spec["name"]) if share == 1 else f"{dataset_spec['name']} {share}"
            pipelines.setdefault(name, {})[dataset] = _settings(runs)

    for pipeline, settings in pipelines.items():
        differing = _differing(list(settings.values()))
        counts = {name: len(set(values)) for name, values in differing.items() if all(map(_is_number, values))}
        axis = max(counts, key=lambda name: counts[name], default="")
        if counts.get(axis, 0) < FEWEST:
            continue

        *line_options, panel = [name for name in differing if name != axis] or [""]

        panels: dict[str, dict[str, list[tuple[float, float, float]]]] = {}
        for dataset, options in settings.items():
            table = tables[dataset]
            rows = table.rows.drop(index=table.baseline)
            for method, row in rows[rows["delta_i"].notna()].iterrows():
                line = ", ".join([str(method), *(f"{name}: {options[name]}" for name in line_options)])
                lines = panels.setdefault(f"{panel}: {options[panel]}" if panel else "", {})
                lines.setdefault(line, []).append((float(options[axis]), row["delta_i"], row["delta_i_ci"]))

        frames = {title: {line: _frame(rows) for line, rows in lines.items()} for title, lines in panels.items()}
        if any(len(rows) >= FEWEST for lines in frames.values() for rows in lines.values()):
            baseline = str(next(tables[dataset].baseline for dataset in settings))
            yield Course(pipeline, baseline, axis, frames)


def _settings(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the options of data set and encoder that all runs on a data set have in common.

    A list of one entry counts as that entry.
    """
    specs = [{**run.spec.get("dataset", {}), **run.spec.get("encoder", {})} for run in runs]
    common = {name: value for name, value in specs[0].items() if all(spec.get(name) == value for spec in specs)}
    single = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in common.items()
    }
    named = {name: value for name, value in single.items() if name not in _DRAWS}
    return {name: value for name, value in named.items() if isinstance(value, int | float | str)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return option -> its value in each data set, for the options that differ.

    Of several that go together the first counts, and a name comes before a number.
    """
    differing: dict[str, list[Any]] = {}
    patterns = set()
    common = [name for name in settings[0] if all(name in options for options in settings)]

    for name in sorted(common, key=lambda name: _is_number(settings[0][name])):
        values = [options[name] for options in settings]
        pattern = tuple(values.index(value) for value in values)
        if len(set(pattern)) > 1 and pattern not in patterns:
            patterns.add(pattern)
            differing[name] = values

    return differing


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _frame(rows: Sequence[tuple[float, float, float]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["x", "gain", "ci"]).sort_values("x", ignore_index=True)


def course_table(course: Course) -> Sheet:
    """Tabulate the course: a row per line, a column per value."""
    x_values = [rows["x"] for lines in course.panels.values() for rows in lines.values()]
    values = sorted(set(np.concatenate(x_values)))
    rows = []
    for panel, lines in course.panels.items():
        for line, frame in lines.items():
            texts = {x: _text(gain, ci) for x, gain, ci in frame.itertuples(index=False)}
            rows.append((f"{line}, {panel}" if panel else line, *(texts.get(value, "–") for value in values)))
    caption = f"Mean over seeds, with half the 95 % interval; positive is better than {course.baseline}."
    return text_sheet(course.title, caption, (course.over, *(f"{value:g}" for value in values)), tuple(rows))


def sentences(course: Course) -> Iterator[str]:
    """Say for each line where its interval lies on one side of 0."""
    for panel, lines in course.panels.items():
        for line, rows in lines.items():
            ends = {"better": rows["x"][rows["gain"] > rows["ci"]], "worse": rows["x"][-rows["gain"] > rows["ci"]]}
            verdicts = [
                f"{word} than {course.baseline} at {_values(x_values)}"
                for word, x_values in ends.items()
                if len(x_values)
            ]
            name = f"{line}, {panel}" if panel else line
            yield f"{name}: {' and '.join(verdicts) or 'no interval lies on one side of 0'}."


def _values(scores: pd.Series[float]) -> str:
    return ", ".join(f"{value:g}" for value in scores)


def _text(gain: float, ci: float) -> str:
    return f"{gain:+.1f}" if np.isnan(ci) else f"{gain:+.1f} ± {ci:.1f}"


def course_figure(course: Course, styles: LineStyles | None = None) -> Drawing:
    """Draw the panels beside each other, each line with its intervals."""
    styles = _course_styles(course, styles or {})
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
                    color=styles[line].color,
                    linestyle=styles[line].line,
                    marker=styles[line].marker,
                    capsize=2.5,
                )

            panel.axhline(0.0, color=GREY, linewidth=0.8, linestyle="--", zorder=0)
            if course.logarithmic:
                panel.set_xscale("log")
                panel.xaxis.set_major_formatter("{x:g}")
            panel.set_xlabel(course.over)
            panel.set_title(title)

        axes[0].set_ylabel(f"Δ over {course.baseline}, %")
        handles = {
            text: handle for axis in axes for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
        }
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", frameon=False, ncols=2)

    return figure


def course_plot(course: Course, styles: LineStyles | None = None) -> Figure:
    """Draw the same as a plotly figure for the page."""
    panels = {title: dict(list(lines.items())[:MOST_LINES]) for title, lines in course.panels.items()}
    figure = lines_with_intervals(panels, "gain", _course_styles(course, styles or {}), course.over)
    if course.logarithmic:
        figure.update_xaxes(type="log")
    return figure


def _course_styles(course: Course, styles: LineStyles) -> dict[str, LineStyle]:
    """Return the looks of the lines: methods look as everywhere, lines of a method and an option get their own."""
    lines = list(dict.fromkeys(line for panel in course.panels.values() for line in panel))
    return {**line_styles(lines), **{line: styles[line] for line in lines if line in styles}}
