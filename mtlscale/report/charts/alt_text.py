"""Alternative texts of figures, with the numbers that matter, for readers who hear a page instead of seeing it."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Trace = Mapping[str, Any]

MAX_LINES = 6  # lines or bars that are described one by one


def in_words(figure: Mapping[str, Any]) -> str:
    """Describe a figure, given as plotly's JSON, with a sentence for each kind of mark.

    Traces marked `aside`, such as single runs, are left out.
    """
    meta = figure["layout"].get("meta")
    if isinstance(meta, dict) and "words" in meta:
        return str(meta["words"])

    traces = [trace for trace in figure["data"] if trace.get("meta") != "aside" and trace.get("hoverinfo") != "skip"]
    sentences = [*_describe_lines([trace for trace in traces if _is_line(trace)]), *_points(traces), *_maps(traces)]
    return " ".join(sentences) or "A drawing; the tables have its numbers."


def _is_line(trace: Trace) -> bool:
    return trace["type"] == "scatter" and "lines" in trace.get("mode", "") and "name" in trace


def _describe_lines(traces: Sequence[Trace]) -> Iterator[str]:
    """Say from which value to which value each line goes."""
    descriptions, names = [], set()
    for trace in traces:
        ends, name = _numbers(trace.get("y")), trace["name"]
        if ends and name not in names:
            names.add(name)
            descriptions.append(f"{_plain(name)} from {ends[0]:.4g} to {ends[-1]:.4g}")

    if descriptions:
        remainder = f" and {len(descriptions) - MAX_LINES} more" if len(descriptions) > MAX_LINES else ""
        yield f"{_counted(len(descriptions), 'line')}: {'; '.join(descriptions[:MAX_LINES])}{remainder}."


def _points(traces: Sequence[Trace]) -> Iterator[str]:
    """Name the largest and the smallest of the named points or bars."""
    named: dict[str, float] = {}
    loose: list[float] = []

    for trace in traces:
        if trace["type"] == "bar" and trace.get("orientation") != "h":
            bars = zip(_list_or_empty(trace.get("x")), _list_or_empty(trace.get("y")), strict=False)
            pairs = [(_joined(trace.get("name"), x), y) for x, y in bars]
        elif trace["type"] in ("bar", "scatter") and not _is_line(trace) and "markers" in trace.get("mode", "markers"):
            pairs = list(_of_scatter(trace))
        else:
            continue

        for name, value in pairs:
            if not isinstance(value, int | float) or math.isnan(value):
                continue
            if name:
                named.setdefault(name, float(value))
            else:
                loose.append(float(value))

    if named:
        order = sorted(named.items(), key=lambda item: -item[1])
        if len(order) <= 2 * MAX_LINES:
            yield f"From high to low: {', '.join(f'{name} {value:.4g}' for name, value in order)}."
        else:
            ends = [", ".join(f"{name} {value:.4g}" for name, value in part) for part in (order[:3], order[-3:])]
            yield f"{len(order)} values; highest {ends[0]}; lowest {ends[1]}."
    elif loose:
        yield f"{_counted(len(loose), 'point')} from {min(loose):.4g} to {max(loose):.4g}."


def _of_scatter(trace: Trace) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each point; names stand on an axis, at the points or behind them."""
    xs, ys = _list_or_empty(trace.get("x")), _list_or_empty(trace.get("y"))
    if ys and isinstance(ys[0], str):
        yield from ((_plain(y), x) for x, y in zip(xs, ys, strict=False))
        return

    for names in (_list_or_empty(trace.get("customdata")), _list_or_empty(trace.get("text")), xs):
        if len(names) == len(ys) and all(isinstance(name, str) for name in names):
            yield from ((_plain(name), y) for name, y in zip(names, ys, strict=True))
            return
    yield from (("", y) for y in ys)


def _maps(traces: Sequence[Trace]) -> Iterator[str]:
    for trace in traces:
        if trace["type"] != "heatmap":
            continue

        values = _list_or_empty(trace.get("customdata", trace.get("z")))
        names = [_list_or_empty(trace.get("y")), _list_or_empty(trace.get("x"))]
        cells = [
            (float(value), names[0][row], names[1][column])
            for row, row_values in enumerate(values)
            for column, value in enumerate(row_values)
            if isinstance(value, int | float) and not math.isnan(value)
        ]

        if cells:
            high, low = max(cells, key=lambda cell: cell[0]), min(cells, key=lambda cell: cell[0])
            yield (f"{len(names[0])} rows by {len(names[1])} columns: highest {_cell(high)}, lowest {_cell(low)}.")


def _cell(cell: tuple[float, Any, Any]) -> str:
    return f"{cell[0]:.4g} ({_plain(cell[1])}, {_plain(cell[2])})"


def _joined(name: Any, values: Any) -> str:
    return f"{_plain(name)} at {_plain(values)}" if name else _plain(values)


def _numbers(values: Any) -> list[float]:
    return [float(v) for v in _list_or_empty(values) if isinstance(v, int | float) and not math.isnan(v)]


def _list_or_empty(values: Any) -> list[Any]:
    return values if isinstance(values, list) else []


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _plain(text: Any) -> str:
    """Undo the escaping for plotly, which reads labels as HTML."""
    return html.unescape(str(text))
