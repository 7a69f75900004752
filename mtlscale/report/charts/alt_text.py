"""Alternative texts of charts, with the numbers that matter, for readers who hear a page instead of seeing it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from mtlscale.report.cells.number_format import counted
from mtlscale.report.charts.chart import Bars, Chart, Dots, HeatMap, Line, Panel

MAX_LINES = 6  # lines or bars that are described one by one


def described(chart: Chart) -> str:
    """Describe a chart with a sentence for each kind of mark, without marks that are aside, such as single runs."""
    if chart.words:
        return chart.words
    marks = [mark for panel in chart.panels for mark in panel.marks]
    lines = [mark for mark in marks if isinstance(mark, Line) and mark.name and mark.hover]
    points = [point for panel in chart.panels for point in _points(panel)]
    maps = [sentence for panel in chart.panels for sentence in _maps(panel)]
    sentences = [*_describe_lines(lines), *_describe_points(points), *maps]
    return " ".join(sentences) or "A drawing; the tables have its numbers."


def _describe_lines(lines: Sequence[Line]) -> Iterator[str]:
    """Say from which value to which value each line goes."""
    ends = {line.name: values for line in reversed(lines) if (values := [y for y in line.y if _is_number(y)])}
    descriptions = [
        f"{name} from {ends[name][0]:.4g} to {ends[name][-1]:.4g}"
        for name in dict.fromkeys(line.name for line in lines)
        if name in ends
    ]
    if descriptions:
        remainder = f" and {len(descriptions) - MAX_LINES} more" if len(descriptions) > MAX_LINES else ""
        yield f"{counted(len(descriptions), 'line')}: {'; '.join(descriptions[:MAX_LINES])}{remainder}."


def _points(panel: Panel) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each dot and bar; names stand on an axis or behind the dots."""
    for bars in panel.of(Bars):
        yield from (
            (f"{bars.name} at {at}" if bars.name else str(at), length)
            for at, length in zip(bars.at, bars.length, strict=True)
        )
    for dots in panel.of(Dots):
        if not dots.aside:
            along, values = (dots.y, dots.x) if panel.y.names else (dots.x, dots.y)
            on_axis = along if panel.y.names or panel.x.names else [""] * len(values)
            yield from zip(map(str, dots.names or on_axis), values, strict=True)


def _describe_points(points: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """Name the largest and the smallest of the named dots or bars."""
    numbers = [(name, float(value)) for name, value in points if _is_number(value)]
    named: dict[str, float] = {}
    for name, value in numbers:
        if name:
            named.setdefault(name, value)

    if named:
        order = sorted(named.items(), key=lambda item: -item[1])
        if len(order) <= 2 * MAX_LINES:
            yield f"From high to low: {_listed(order)}."
        else:
            yield f"{len(order)} values; highest {_listed(order[:3])}; lowest {_listed(order[-3:])}."
    elif numbers:
        values = [value for _, value in numbers]
        yield f"{counted(len(values), 'point')} from {min(values):.4g} to {max(values):.4g}."


def _maps(panel: Panel) -> Iterator[str]:
    for heat in panel.of(HeatMap):
        values = heat.values if heat.shown is None else heat.shown
        rows, columns = (
            axis.names or range(count) for axis, count in zip((panel.y, panel.x), values.shape, strict=True)
        )
        cells = [
            (float(value), f"{value:.4g} ({row}, {column})")
            for row, row_values in zip(rows, values, strict=True)
            for column, value in zip(columns, row_values, strict=True)
            if _is_number(value)
        ]
        if cells:
            high, low = max(cells, key=lambda cell: cell[0]), min(cells, key=lambda cell: cell[0])
            yield f"{len(rows)} rows by {len(columns)} columns: highest {high[1]}, lowest {low[1]}."


def _listed(items: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in items)


def _is_number(value: Any) -> bool:
    return value is not None and not isinstance(value, str) and not math.isnan(value)
