"""The effect of a number that differs between data sets of one pipeline, such as a source's size, on Δ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from mtlscale.records import RunRecord
from mtlscale.report.cells.number_format import file_name
from mtlscale.report.report_section import HTML, REPORT, ReportSection
from mtlscale.report.sections.learning_curves import FRACTION_KEY
from mtlscale.report.sections.registry import View, section
from mtlscale.report.sensitivity import FEWEST, Sensitivity, frame, is_number, spans, value_table
from mtlscale.report.stats.frames import by_dataset, newest

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

_DRAWS = ("name", "seed", "split", "task_metrics")  # options in which otherwise equal data sets may differ
_LOG_AXIS_RATIO = 10.0  # largest over smallest value from which the axis is logarithmic


@section("data_settings", order=50, formats=(REPORT, HTML))
def data_settings(view: View) -> Iterator[ReportSection]:
    """Yield a course for each option of the data in which data sets of one pipeline differ."""
    return (course.study(view.looks) for course in courses(view.records, view.tables))


def courses(records: Sequence[RunRecord], tables: Mapping[str, Table]) -> Iterator[Sensitivity]:
    """Yield the course of Δ for each pipeline whose data sets differ in a number that has several values.

    The number, an option of data set or encoder, with the most values is the axis. Of the other options that differ,
    the last has a panel for each value; the remaining ones and the methods have lines.
    """
    pipelines: dict[str, dict[str, dict[str, Any]]] = {}
    for dataset, runs in by_dataset(newest(records)).items():
        if tables[dataset].baseline is not None and "name" in (dataset_spec := runs[0].spec.get("dataset", {})):
            share = dataset_spec.get(FRACTION_KEY, 1.0)  # of shares there are learning curves
            name = str(dataset_spec["name"]) if share == 1 else f"{dataset_spec['name']} {share}"
            pipelines.setdefault(name, {})[dataset] = _settings(runs)

    for pipeline, settings in pipelines.items():
        differing = _differing(list(settings.values()))
        counts = {name: len(set(values)) for name, values in differing.items() if all(map(is_number, values))}
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

        frames = {title: {line: frame(rows) for line, rows in lines.items()} for title, lines in panels.items()}
        if any(len(rows) >= FEWEST for lines in frames.values() for rows in lines.values()):
            baseline = str(next(tables[dataset].baseline for dataset in settings))
            yield course(pipeline, baseline, axis, frames)


def course(pipeline: str, baseline: str, over: str, panels: Mapping[str, Mapping[str, pd.DataFrame]]) -> Sensitivity:
    """Return the course of Δ over an option of a pipeline, with its sentences and table."""
    title = f"Δ over {baseline}, %, by {over}"
    lines = {
        f"{line}, {panel}" if panel else line: rows
        for panel, of_panel in panels.items()
        for line, rows in of_panel.items()
    }
    caption = f"Mean over seeds, with half the 95 % interval; positive is better than {baseline}."
    return Sensitivity(
        file=f"by_{file_name(f'{over}_{pipeline}')}",
        title=title,
        over=over,
        panels=panels,
        sentences=[_sentence(line, rows, baseline) for line, rows in lines.items()],
        tables=[value_table(title, caption, over, lines, "+.1f")],
        measured=f"Δ over {baseline}, %",
        log=spans(lines.values(), _LOG_AXIS_RATIO),
        levels=dict.fromkeys(panels, (0.0, "")),
        alike=True,
    )


def _sentence(line: str, rows: pd.DataFrame, baseline: str) -> str:
    """Say where the line's interval lies on one side of 0."""
    ends = {"better": rows["x"][rows["value"] > rows["ci"]], "worse": rows["x"][-rows["value"] > rows["ci"]]}
    verdicts = [
        f"{word} than {baseline} at {', '.join(f'{value:g}' for value in values)}"
        for word, values in ends.items()
        if len(values)
    ]
    return f"{line}: {' and '.join(verdicts) or 'no interval lies on one side of 0'}."


def _settings(runs: Sequence[RunRecord]) -> dict[str, Any]:
    """Return the options of data and encoder that all runs have in common; a list of one counts as its entry."""
    specs = [{**run.spec.get("dataset", {}), **run.spec.get("encoder", {})} for run in runs]
    common = {name: value for name, value in specs[0].items() if all(spec.get(name) == value for spec in specs)}
    single = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value for name, value in common.items()
    }
    named = {name: value for name, value in single.items() if name not in _DRAWS}
    return {name: value for name, value in named.items() if isinstance(value, int | float | str)}


def _differing(settings: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return option -> its value in each data set, for the options that differ."""
    # Of several that go together the first counts, and a name comes before a number.
    differing: dict[str, list[Any]] = {}
    patterns = set()
    common = [name for name in settings[0] if all(name in options for options in settings)]

    for name in sorted(common, key=lambda name: is_number(settings[0][name])):
        values = [options[name] for options in settings]
        pattern = tuple(values.index(value) for value in values)
        if len(set(pattern)) > 1 and pattern not in patterns:
            patterns.add(pattern)
            differing[name] = values

    return differing
