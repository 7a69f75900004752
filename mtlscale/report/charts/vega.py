"""Charts as Vega-Lite specifications, the same for files and for pages.

`page.js` exchanges INK, GRID and PAPER for the colours of the page.
"""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtlscale.records import write_atomically
from mtlscale.report.charts.chart import INK, Axis, Bars, Chart, Dots, Image, Level, Line, Panel
from mtlscale.report.charts.colors import GREY
from mtlscale.report.charts.layers import GRID, PAPER, SHAPES, Spec, layer, layers, names_along, values_of

DOTS, MOST_PIXELS = 150, 4000  # dots per inch; pixels of height, above which the resolution drops
_LETTER = 0.56  # mean width of a letter, in sizes of the font


@dataclass(frozen=True)
class Medium:
    """What charts are drawn on: pixels for an inch, the size of letters, and whether title and note are drawn."""

    pixels: int
    font: int
    titled: bool


FILE, PAGE = Medium(72, 9, titled=True), Medium(78, 12, titled=False)


def save(charts: Sequence[Chart], path: Path) -> Path:
    """Draw charts below each other into a file, whole or not at all; its suffix, .png or .svg, gives the format."""
    from vl_convert import svg_to_png, vegalite_to_svg

    parts = []
    for chart, after in zip(charts, [*charts[1:], None], strict=True):
        part = specification(chart, FILE)
        _widen(part, chart, chart.width * FILE.pixels - _size(vegalite_to_svg(part, allowed_base_urls=[]))[0])
        said_below = after is not None and after.note == chart.note
        parts.append(_noted(part, "" if said_below else chart.note, chart.width))

    svg = vegalite_to_svg({"config": _config(FILE), "vconcat": parts, "spacing": 24}, allowed_base_urls=[])
    scale = min(DOTS / FILE.pixels, MOST_PIXELS / _size(svg)[1])
    write_atomically(path, svg.encode() if path.suffix == ".svg" else svg_to_png(svg, scale=scale))
    return path


def _size(svg: str) -> tuple[float, float]:
    width, height = re.findall(r'(?:width|height)="([\d.]+)"', svg)[:2]
    return float(width), float(height)


def _widen(spec: Spec, chart: Chart, missing: float) -> None:
    """Give the panels of a row the pixels that are missing from the width of the chart."""
    for panel, part, share in zip(chart.panels, spec["concat"], _shares(chart), strict=True):
        if not panel.equal:
            part["width"] = max(40.0, part["width"] + missing * share)


def _shares(chart: Chart) -> list[float]:
    """Return each panel's share of the width."""
    columns = [panel.weight for panel in chart.panels[: chart.across]]
    return [columns[index % chart.across] / sum(columns) for index in range(len(chart.panels))]


def _noted(part: Spec, note: str, inches: float) -> Spec:
    """Return a drawing with its note below."""
    letters = int(inches * FILE.pixels / (0.85 * _LETTER * (FILE.font - 1.5)))
    lines = [line for paragraph in note.split("\n") for line in textwrap.wrap(paragraph, letters)]
    if not lines:
        return part
    title = {"text": lines, "orient": "bottom", "fontSize": FILE.font - 1.5, "fontWeight": "normal", "color": GREY}
    return {"title": title, "vconcat": [part]}


def specification(chart: Chart, medium: Medium = PAGE) -> Spec:
    """Return the chart as a Vega-Lite specification; on a page its title and note stand outside of it."""
    around = medium.font * (3.2 + 1.7 * any(panel.title for panel in chart.panels))
    height = max(40.0, chart.height * medium.pixels / chart.down - around)
    widths = [0.8 * chart.width * medium.pixels * share for share in _shares(chart)]
    parts = [_panel(chart, index, (width, height), medium) for index, width in enumerate(widths)]
    entries = _entries(chart, medium)
    if entries:
        parts[0]["layer"].append(_legend(chart, entries, medium))

    ratios = [part["width"] / part["height"] for part in parts]
    shared = dict.fromkeys(("color", "shape", *(["y"] if chart.share_y else [])), "shared")
    spec: Spec = {
        "config": _config(medium),
        "columns": chart.across,
        "spacing": 16,
        "concat": parts,
        "resolve": {"scale": {"fill": "independent", **shared}, "legend": {"fill": "independent"}},
        # What the page needs to fit the chart to its width.
        "usermeta": {
            "entry": _text_width(list(entries), medium) + 30,
            "row": chart.row,
            "ratios": [ratio * panel.equal for ratio, panel in zip(ratios, chart.panels, strict=True)],
            "shares": _shares(chart),
        },
    }
    return {**spec, "title": chart.title} if medium.titled and chart.title else spec


def _text_width(texts: Sequence[str], medium: Medium) -> float:
    """Return about how many pixels the longest text takes."""
    return max((len(text) for text in texts), default=0) * _LETTER * medium.font


def _config(medium: Medium) -> Spec:
    size, label = medium.font, {"labelFontSize": medium.font, "labelColor": INK, "labelLimit": 400, "titleColor": INK}
    lines = {"gridColor": GRID, "domainColor": GRID, "tickColor": GRID}
    return {
        "aria": False,
        "background": PAPER,
        "font": "Liberation Sans, Arial, sans-serif",
        "lineBreak": "\n",
        "view": {"stroke": None},
        "axis": {
            **label,
            **lines,
            "titleFontSize": size,
            "titleFontWeight": "normal",
            "titlePadding": 6,
            "labelSeparation": 6,
        },
        "legend": {**label, "symbolSize": 8 * size, "gradientStrokeColor": GRID},
        "title": {"color": INK, "fontSize": size + 2, "anchor": "start", "frame": "bounds"},
        "mark": {"opacity": 1},
        "text": {"fontSize": size},
    }


def _panel(chart: Chart, index: int, size: tuple[float, float], medium: Medium) -> Spec:
    panel, (width, height) = chart.panels[index], size
    if panel.equal:
        (x_low, x_high), (y_low, y_high) = _span(panel, "x"), _span(panel, "y")
        width = min(width, height * (x_high - x_low) / (y_high - y_low))
        height = width * (y_high - y_low) / (x_high - x_low)

    channels = {"x": _channel(panel, "x", chart.x_title(index)), "y": _channel(panel, "y", panel.y.title)}
    _turn_names(panel, channels["x"], width, medium)
    part: Spec = {"width": width, "height": height, "encoding": channels, "layer": layers(panel, medium.font)}
    if not part["layer"]:
        part |= {"encoding": {}, "layer": [{"data": {"values": []}, "mark": {"type": "point"}}]}
    if panel.title:
        color = panel.title_color or INK
        letters = {"fontSize": medium.font + 1, "fontWeight": "normal"}
        part["title"] = {"text": panel.title, "color": color, "frame": "group", **letters}
    return part


def _channel(panel: Panel, name: str, title: str) -> Spec:
    """Return the scale and the ticks of an axis."""
    axis: Axis = getattr(panel, name)
    shown: Spec = {"grid": axis.grid, "orient": {"x": "top" if axis.opposite else "bottom", "y": "left"}[name]}
    names = names_along(panel, name)
    if axis.ticks:
        values: list[str] | list[float] = names or [float(value) for value in axis.ticks]
        texts = [axis.ticks.get(value, value) for value in values]
        shown["labelExpr"] = f"{json.dumps(texts)}[indexof({json.dumps(values)}, datum.value)]"

    if names:
        order = names if (name == "x") != axis.reverse else names[::-1]
        scale: Spec = {"type": "band", "domain": order, "padding": 0}
        shown |= {"grid": False, "ticks": False, "domain": False, "labelAngle": 0, "labelPadding": 5}
    elif panel.of(Image):
        scale = {"nice": False, "reverse": name == "y"}
    else:
        low, high = axis.limits
        ends = {end: value for end, value in (("domainMin", low), ("domainMax", high)) if value is not None}
        free = axis.limits in ((None, None), (0, None))
        from_zero = low == 0 or any(bars.lying == (name == "x") for bars in panel.of(Bars))
        scale = {"type": "log", "nice": False} if axis.log else {"zero": from_zero, "nice": free}
        scale |= ends | {"reverse": axis.reverse, "padding": 6 if free and not from_zero else 0}
        if axis.ticks:
            shown |= {"values": values, "labelOverlap": True}
        elif axis.log:
            thousands = "datum.value < 1000 ? format(datum.value, '.3~g') : format(datum.value, '.3~s')"
            shown |= {"values": _log_ticks(*_span(panel, name)), "labelExpr": thousands}
        elif axis.whole:
            shown |= {"format": ",d", "tickMinStep": 1}

    kind, ticks = "nominal" if names else "quantitative", shown if axis.visible else None
    return {"field": name, "type": kind, "scale": scale, "title": title or None, "axis": ticks}


def _turn_names(panel: Panel, channel: Spec, width: float, medium: Medium) -> None:
    """Turn names that have no room beside each other."""
    texts = [panel.x.ticks.get(name, name) for name in panel.x.names]
    if texts and channel["axis"] and len(texts) * (_text_width(texts, medium) + 4) > width:
        channel["axis"] |= {"labelAngle": -40, "labelAlign": "right"}


def _span(panel: Panel, name: str) -> tuple[float, float]:
    """Return the ends of an axis of numbers: its limits, else those of what is drawn."""
    axis: Axis = getattr(panel, name)
    if images := panel.of(Image):
        return 0.0, float(images[0].pixels.shape[int(name == "x")])

    values = [
        value
        for mark in (*panel.of(Line), *panel.of(Dots))
        for value in values_of(getattr(mark, name))
        if isinstance(value, float) and (value > 0 or not axis.log)
    ]
    low, high = axis.limits
    return min(values, default=1.0) if low is None else low, max(values, default=2.0) if high is None else high


def _log_ticks(low: float, high: float) -> list[float]:
    steps = (1.0, 2.0, 5.0) if high < 50 * low else (1.0,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [step * 10.0**power for power in powers for step in steps]


def _entries(chart: Chart, medium: Medium) -> dict[str, tuple[str, str]]:
    """Return text -> colour and shape of the legend of all panels; a page names listed points beside them instead."""
    entries: list[tuple[str, str, str]] = []
    for mark in (mark for panel in chart.panels for mark in panel.marks if chart.legend):
        if isinstance(mark, Line | Level):
            marked = isinstance(mark, Line) and mark.dotted
            entries.append((mark.name, mark.look.color, mark.look.symbol if marked else mark.look.dash))
        elif isinstance(mark, Bars):
            entries.append((mark.name, mark.colors if isinstance(mark.colors, str) else mark.colors[0], "square"))
        elif isinstance(mark, Dots) and mark.listed and medium.titled:
            named = zip(mark.names, mark.of_each(mark.notes, ""), mark.look_of_each, strict=True)
            entries += [(f"{name}{note}", look.color, look.symbol) for name, note, look in named]
        elif isinstance(mark, Dots) and len(mark.x):
            entries.append((mark.legend, mark.look_of_each[0].color, mark.look_of_each[0].symbol))
    entries += [(text, color, "square") for color, text in chart.key]

    looks: dict[str, tuple[str, str]] = {}
    for text, color, symbol in entries:
        if text:
            looks.setdefault(text, (color, SHAPES.get(symbol, symbol)))
    return looks


def _legend(chart: Chart, entries: Mapping[str, tuple[str, str]], medium: Medium) -> Spec:
    """Return a layer outside of its panel, which has the legend alone."""
    names, right = list(entries), chart.legend == "right" and medium.titled
    columns = int(chart.width * medium.pixels / (_text_width(names, medium) + 30))
    if right:
        columns = -(-len(names) // max(8, int(chart.height * medium.pixels / 15)))
    plain = {"update": {"stroke": {"value": "transparent"}, "opacity": {"value": 1}}}  # whatever other layers have
    legend: Spec = {"title": None, "encoding": {"symbols": plain}, "columns": max(1, columns), "symbolLimit": 0}
    legend["orient"] = "right" if right else "bottom"
    channels: Spec = {"x": {"value": -999}, "y": {"value": -999}}
    for index, channel in enumerate(("color", "shape")):
        scale = {"domain": names, "range": [entries[name][index] for name in names]}
        channels[channel] = {"field": "name", "type": "nominal", "scale": scale, "legend": legend}
    return next(layer([{"name": name} for name in names], "point", channels, filled=True, clip=True))
