"""Charts as plotly figures, for pages.

Plotly reads labels as a small HTML of its own, so names that the user gave are escaped here.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.report.charts.chart import INK, Axis, Bars, Chart, ChartText, Dots, HeatMap, Level, Line, Panel, Values
from mtlscale.report.charts.colors import GREY

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_PIXELS = 78  # of height for an inch of a file
_FIELDS = {"name": "customdata", "note": "hovertext", "at": "x", "length": "y", "row": "y", "column": "x", "value": "z"}
_LEGEND_LETTERS = 60  # in a line
_MOST_WHOLE_TICKS = 8
Traces = list[dict[str, Any]]


def plot(chart: Chart) -> Figure:
    """Return the chart as a plotly figure; its title and note stand outside of it."""
    from plotly.graph_objects import Figure

    traces: Traces = []
    layout: dict[str, Any] = {"annotations": [], "shapes": []}
    listed: set[str] = set()
    for index, panel in enumerate(chart.panels):
        if panel.marks:
            traces += _panel(chart, index, panel, layout, listed)

    titled = any(panel.title for panel in chart.panels)
    above = 46 if any(panel.x.opposite for panel in chart.panels) else 36 if titled else 16
    layout |= {"template": "none", "height": round(_PIXELS * chart.height), "showlegend": False, "barmode": "overlay"}
    layout["margin"] = {"l": 10, "r": 16, "t": above, "b": 30}
    if chart.legend and (names := chart.legend_names):
        layout |= _legend(names, layout, unified=any(line.name for panel in chart.panels for line in panel.of(Line)))

    if chart.row:
        layout["meta"] = {"row": chart.row}
    return Figure({"data": traces, "layout": layout})


def _legend(names: Sequence[str], layout: dict[str, Any], *, unified: bool) -> dict[str, Any]:
    """Return a legend below the panels, with room for its lines."""
    room = 46 + 20 * (1 + sum(len(name) + 7 for name in names) // _LEGEND_LETTERS)
    return {
        "showlegend": True,
        "height": layout["height"] + room,
        "margin": {**layout["margin"], "b": room},
        "legend": {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        **({"hovermode": "x unified"} if unified else {}),
    }


def _panel(chart: Chart, index: int, panel: Panel, layout: dict[str, Any], listed: set[str]) -> Traces:
    suffix = "" if index == 0 else str(index + 1)
    x_domain, y_domain = _domains(chart, index)
    layout[f"xaxis{suffix}"] = {
        **_axis(panel.x, chart.x_title(index)), "domain": x_domain, "anchor": f"y{suffix}",
        **(_whole_ticks(panel) if panel.x.whole else {}),
        **({"side": "top"} if panel.x.opposite else {}),
    }  # fmt: skip
    layout[f"yaxis{suffix}"] = {
        **_axis(panel.y, panel.y.title), "domain": y_domain, "anchor": f"x{suffix}",
        **({"matches": "y"} if chart.share_y and index else {}),
        **({"scaleanchor": f"x{suffix}"} if panel.equal else {}),
    }  # fmt: skip
    if panel.title:
        font = {"size": 16 if chart.across <= 3 else 12, "color": panel.title_color or None}
        layout["annotations"].append(
            {"x": sum(x_domain) / 2, "y": y_domain[1], "xref": "paper", "yref": "paper", "showarrow": False,
             "xanchor": "center", "yanchor": "bottom", "text": label(panel.title), "font": font}
        )  # fmt: skip

    traces: Traces = []
    for mark in panel.marks:
        if isinstance(mark, ChartText):
            layout["annotations"].append({**_text(mark, f"x{suffix}"), "yref": f"y{suffix}"})
        elif isinstance(mark, Level):
            layout["shapes"].append({**_level(mark, suffix), **_entry(mark.name, chart, listed)})
        else:
            traces += _traces(mark, panel, chart, listed)
    return [{**trace, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"} for trace in traces]


def _domains(chart: Chart, index: int) -> tuple[list[float], list[float]]:
    """Return the parts of width and height that a panel takes."""
    row, column = divmod(index, chart.across)
    gap, gap_below = 0.07 if chart.across <= 3 else 0.04, 0.3 / chart.down
    weights = [panel.weight for panel in chart.panels[: chart.across]]
    width = (1 - gap * (chart.across - 1)) / sum(weights)
    height = (1 - gap_below * (chart.down - 1)) / chart.down

    left = sum(weights[:column]) * width + gap * column
    top = 1 - row * (height + gap_below)
    return [left, min(1.0, left + weights[column] * width)], [max(0.0, top - height), top]


def _whole_ticks(panel: Panel) -> dict[str, Any]:
    """Return ticks of the x-axis at whole numbers alone; plotly's own would be rounded halves."""
    values = [float(x) for mark in panel.marks if isinstance(mark, Line | Dots) for x in mark.x]
    span = max(values) - min(values) if values else 0.0
    steps = (factor * 10**power for power in range(12) for factor in (1, 2, 5))
    return {"tickformat": ",d", "tick0": 0, "dtick": next(step for step in steps if span <= _MOST_WHOLE_TICKS * step)}


def _axis(axis: Axis, title: str) -> dict[str, Any]:
    result: dict[str, Any] = {"automargin": True, "zeroline": False, "showgrid": axis.grid}
    if title:
        result["title"] = {"text": label(title), "standoff": 6}
    if axis.log:
        result |= {"type": "log"} if axis.ticks else {"type": "log", "dtick": "D2"}
    if axis.names:
        names = [label(name) for name in axis.names]
        result |= {"type": "category", "categoryorder": "array", "categoryarray": names}
        if axis.ticks or not axis.grid:
            result |= {"tickvals": names, "ticktext": [label(axis.ticks.get(name, name)) for name in axis.names]}
    elif axis.ticks:
        result |= {"tickvals": list(axis.ticks), "ticktext": [label(text) for text in axis.ticks.values()]}
    if not axis.visible:
        result["visible"] = False

    limits = [None if end is None else float(np.log10(end)) if axis.log else float(end) for end in axis.limits]
    if axis.limits == (0, None):
        result["rangemode"] = "tozero"
    elif limits != [None, None]:
        result["range"] = limits[::-1] if axis.reverse else limits
    elif axis.reverse:
        result["autorange"] = "reversed"
    return result


def _traces(mark: Any, panel: Panel, chart: Chart, listed: set[str]) -> Traces:
    if isinstance(mark, Line):
        return _line(mark, chart, listed)
    if isinstance(mark, Dots):
        return [_dots(mark, chart, listed)]
    if isinstance(mark, Bars):
        return [_bars(mark, chart, listed)]
    if isinstance(mark, HeatMap):
        return [_heat(mark, panel)]
    pixels = mark.pixels if mark.pixels.dtype == np.uint8 else (255 * mark.pixels).astype(np.uint8)
    return [{"type": "image", "z": pixels}]


def _entry(name: str, chart: Chart, listed: set[str]) -> dict[str, Any]:
    """Return a trace's name and its entry in the legend, which the first trace of the name has."""
    entry = {"showlegend": bool(chart.legend and name and name not in listed)}
    listed.add(name)
    return {**entry, "name": label(name), "legendgroup": label(name)} if name else entry


def _line(line: Line, chart: Chart, listed: set[str]) -> Traces:
    x, traces, entry = _values(line.x), [], _entry(line.name, chart, listed)
    if line.low is not None and line.high is not None:
        low, high = _values(line.low), _values(line.high)
        if None not in low:
            band = {"type": "scatter", "x": x + x[::-1], "y": high + low[::-1], "fill": "toself", "mode": "lines",
                    "fillcolor": _faint(line.look.color), "line": {"width": 0}, "hoverinfo": "skip"}  # fmt: skip
            traces.append({**band, **entry, "showlegend": False})

    extra = "" if line.name else "<extra></extra>"
    look = {"color": line.look.color, "width": line.width + 0.5, "dash": line.look.dash}
    trace: dict[str, Any] = {
        "type": "scatter", "x": x, "y": _values(line.y), "mode": "lines+markers" if line.dotted else "lines",
        "line": {**look, **({"shape": "hv"} if line.step else {})}, "marker": {"symbol": line.look.symbol}, **entry,
        **({"hovertemplate": _template(line.hover) + extra} if line.hover else {"hoverinfo": "skip"}),
    }  # fmt: skip
    if line.arrow:
        sizes = [*[0] * (len(x) - 1), 11]
        arrow = {"symbol": "arrow", "angleref": "previous", "size": sizes, "color": line.look.color}
        trace |= {"mode": "lines+markers", "marker": arrow}
    return [*traces, {**trace, **_errors(y=line.error)}]


def _dots(dots: Dots, chart: Chart, listed: set[str]) -> dict[str, Any]:
    texts = dots.inside or dots.labels
    trace: dict[str, Any] = {
        "type": "scatter", "x": _values(dots.x), "y": _values(dots.y), "mode": "markers+text" if texts else "markers",
        "marker": _markers(dots), "hovertemplate": f"{_template(dots.hover)}<extra></extra>",
        **_entry(dots.legend, chart, listed), **_errors(x=dots.x_error, y=dots.y_error),
    }  # fmt: skip
    if texts:
        inside = {"textposition": "middle center", "textfont": {"color": "white", "size": 10}}
        trace |= {"text": [label(text) for text in texts], "cliponaxis": False}
        trace |= inside if dots.inside else {"textposition": "top center"}
    if dots.names:
        trace["customdata"] = [label(name) for name in dots.names]
    if dots.notes:
        trace["hovertext"] = [label(note) for note in dots.notes]
    return trace


def _markers(dots: Dots) -> dict[str, Any]:
    symbols, widths, edges = [], [], []
    hollow, ringed = dots.of_each(dots.hollow, False), dots.of_each(dots.ringed, False)
    for look, is_hollow, is_ringed in zip(dots.look_of_each, hollow, ringed, strict=True):
        is_open = is_hollow or look.symbol.startswith("line")
        symbols.append(f"{look.symbol}-open" if is_open else look.symbol)
        widths.append(2.0 if is_open or is_ringed else 0.0)
        edges.append(look.color if is_open else GREY)
    sizes = [1.4 * size for size in dots.of_each(dots.size, 7.0)]
    line = {"width": widths, "color": edges}
    return {"size": sizes, "color": [look.color for look in dots.look_of_each], "symbol": symbols, "line": line,
            "opacity": dots.opacity}  # fmt: skip


def _bars(bars: Bars, chart: Chart, listed: set[str]) -> dict[str, Any]:
    at, length = _values(bars.at), _values(bars.length)
    lying = {"at": "y", "length": "x"} if bars.lying else {}
    trace: dict[str, Any] = {
        "type": "bar", "x": length if bars.lying else at, "y": at if bars.lying else length,
        "orientation": "h" if bars.lying else "v", "width": bars.width, "marker": {"color": bars.colors},
        "hovertemplate": f"{_template(bars.hover, **lying)}<extra></extra>", **_entry(bars.name, chart, listed),
    }  # fmt: skip
    if bars.base is not None:
        trace["base"] = _values(bars.base)
    if bars.offset is not None:
        trace["offset"] = bars.offset
    if bars.texts:
        trace |= {"text": list(bars.texts), "textposition": "inside", "insidetextanchor": "middle", "textangle": 0}
    if bars.notes:
        trace["hovertext"] = [label(note) for note in bars.notes]
    return {**trace, **(_errors(x=bars.error) if bars.lying else _errors(y=bars.error))}


def _heat(heat: HeatMap, panel: Panel) -> dict[str, Any]:
    fields = {} if heat.shown is None else {"value": "customdata"}
    trace: dict[str, Any] = {
        "type": "heatmap", "z": _grid(heat.values), "zmin": heat.low, "zmax": heat.high, "colorscale": heat.colors,
        "showscale": heat.scale, "colorbar": {"exponentformat": "power", "thickness": 14}, "xgap": 1, "ygap": 1,
        "hovertemplate": f"{_template(heat.hover, **fields)}<extra></extra>",
    }  # fmt: skip
    rows, columns = heat.values.shape
    trace["x"] = [label(name) for name in panel.x.names] or list(range(columns))
    trace["y"] = [label(name) for name in panel.y.names] or list(range(rows))
    if heat.shown is not None:
        trace["customdata"] = _grid(heat.shown)
    if len(heat.texts):
        trace |= {"text": [list(row) for row in heat.texts], "texttemplate": "%{text}"}
    return trace


def _level(level: Level, suffix: str) -> dict[str, Any]:
    line = {"color": level.look.color, "width": 1, "dash": level.look.dash}
    if level.axis == "x":
        ends = {"xref": f"x{suffix}", "yref": f"y{suffix} domain", "x0": level.at, "x1": level.at, "y0": 0, "y1": 1}
    else:
        ends = {"xref": f"x{suffix} domain", "yref": f"y{suffix}", "x0": 0, "x1": 1, "y0": level.at, "y1": level.at}
    return {"type": "line", "line": line, **ends}


def _text(text: ChartText, x_axis: str) -> dict[str, Any]:
    on_edge = text.x in ("left", "right")
    [x, y] = _values([int(text.x == "right") if on_edge else text.x, text.y])
    font = {"size": round(1.35 * text.size), "color": text.color or (INK if text.boxed else None)}
    return {"x": x, "y": y, "xref": f"{x_axis} domain" if on_edge else x_axis, "showarrow": False, "font": font,
            "text": f"<b>{label(text.text)}</b>" if text.bold else label(text.text), "xanchor": text.anchor,
            "align": text.anchor, "bgcolor": "rgba(255,255,255,0.85)" if text.boxed else None}  # fmt: skip


def _template(text: str, **fields: str) -> str:
    """Return a hover text with plotly's names of the fields."""
    names = {**_FIELDS, **fields}
    return re.sub(r"\{(\w+)([^}]*)\}", lambda part: f"%{{{names.get(part[1], part[1])}{part[2]}}}", html.escape(text))


def _errors(**widths: Values | None) -> dict[str, Any]:
    """Return error bars from half intervals along x or y."""
    look = {"type": "data", "thickness": 1.4, "width": 4, "color": GREY}
    return {f"error_{axis}": {**look, "array": _values(half)} for axis, half in widths.items() if half is not None}


def _values(values: Values) -> list[Any]:
    """Return names escaped and numbers as they are; None for NaN, which JSON does not have."""
    return [
        label(value) if isinstance(value, str)
        else None if value is None or np.isnan(value)
        else value.item() if isinstance(value, np.generic) else value
        for value in values
    ]  # fmt: skip


def _grid(values: np.ndarray) -> list[list[float | None]]:
    return [_values(row) for row in np.asarray(values, dtype=float)]


def _faint(color: str) -> str:
    """Return a hexadecimal colour as a nearly transparent one."""
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.14)"


def label(text: Any) -> str:
    """Escape a text for plotly's labels."""
    return html.escape(str(text)).replace("\n", "<br>")
