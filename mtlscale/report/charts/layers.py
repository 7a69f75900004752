"""The layers of a panel in Vega-Lite, one for each kind of mark.

The rows of a layer hold what differs from mark to mark: place, colour, size, and the text under the mouse.
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mtlscale.report.charts.chart import INK, Axis, Bars, ChartText, Dots, HeatMap, Image, Level, Line, Panel, Values
from mtlscale.report.charts.colors import GREY

GRID, PAPER = "#e6e8ec", "#ffffff"
_DASHES = {"solid": [1, 0], "dash": [5, 3], "dot": [1.5, 2.5], "dashdot": [5, 2, 1, 2]}
SHAPES = {
    "x": "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
    "star": "M0,-1L.26,-.31L.95,-.31L.39,.12L.59,.81L0,.4L-.59,.81L-.39,.12L-.95,-.31L-.26,-.31Z",
    "line-ew": "M-1,-.1H1V.1H-1Z",
    "line-ns": "M-.1,-1H.1V1H-.1Z",
    # Lines in a legend.
    "solid": "M-1.4,-.15H1.4V.15H-1.4Z",
    "dash": "M-1.4,-.15H-.3V.15H-1.4ZM.3,-.15H1.4V.15H.3Z",
    "dot": "M-1.4,-.15H-.9V.15H-1.4ZM-.25,-.15H.25V.15H-.25ZM.9,-.15H1.4V.15H.9Z",
    "dashdot": "M-1.4,-.15H.1V.15H-1.4ZM.7,-.15H1.2V.15H.7Z",
}
_DARK_TEXT = {"redblue": (0.14, 0.86), "viridis": (0.6, 9.0), "blues": (-9.0, 0.6)}  # shares of colours that are light
_TYPES = dict.fromkeys(("size", "opacity", "strokeWidth", "angle"), "quantitative")
Row = dict[str, Any]
Spec = dict[str, Any]


def layers(panel: Panel, font: int) -> list[Spec]:
    """Return the layers of a panel, the lowest first, with letters of a size."""
    kinds = (_images, _heat, _bars, _levels, _lines, _dots, _texts)
    return [layer for layers_of in kinds for layer in layers_of(panel, font)]


def names_along(panel: Panel, name: str) -> list[str]:
    """Return the names along an axis; rows and columns of cells that have none are numbered."""
    axis: Axis = getattr(panel, name)
    cells = panel.of(HeatMap)
    return list(map(str, axis.names or (range(cells[0].values.shape[int(name == "x")]) if cells else ())))


def layer(rows: Sequence[Row], kind: str, channels: Mapping[str, Any], **mark: Any) -> Iterator[Spec]:
    """Yield a layer, none without rows.

    Args:
        rows: What is drawn, by field; `hover` is the text under the mouse.
        kind: The kind of mark.
        channels: Channel -> the field whose values it takes as they are, or its definition.
        mark: What all rows share.
    """
    if rows:
        encoding = {
            channel: {"field": field, "scale": None, "type": _TYPES.get(channel, "nominal")}
            if isinstance(field, str)
            else field
            for channel, field in channels.items()
        }
        if kind != "line" and any("hover" in row for row in rows):
            encoding["tooltip"] = {"field": "hover", "type": "nominal"}
        yield {"data": {"values": rows}, "mark": {"type": kind, **mark}, "encoding": encoding}


def _ends(*axes: str) -> dict[str, Spec]:
    """Return the channels of marks that reach from x or y to x2 or y2."""
    return {f"{axis}2": {"field": f"{axis}2"} for axis in axes}


def _text_row(x: Any, y: Any, text: str, color: str, size: float, **more: Any) -> Row:
    fields = {"x": x, "y": y, "text": text, "color": color, "size": size}
    return {**fields, "align": "center", "dx": 0, "dy": 0, "weight": "normal", **more}


def _text_layer(rows: Sequence[Row], place: Mapping[str, Spec] | None = None, **mark: Any) -> Iterator[Spec]:
    by_row = {"fontSize": "size", "fontWeight": "weight", "align": "align", "dx": "dx", "dy": "dy"}
    mark |= {name: {"expr": f"datum.{field}"} for name, field in by_row.items()}
    channels = {"text": {"field": "text", "type": "nominal"}, "color": "color", **(place or {})}
    yield from layer(rows, "text", channels, baseline="middle", **mark)


def _images(panel: Panel, font: int) -> Iterator[Spec]:
    from PIL import Image as Picture

    for image in panel.of(Image):
        buffer = io.BytesIO()
        pixels = image.pixels if image.pixels.dtype == np.uint8 else (255 * image.pixels).round().astype(np.uint8)
        Picture.fromarray(pixels).save(buffer, "PNG")
        url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        row = {"x": 0, "x2": pixels.shape[1], "y": 0, "y2": pixels.shape[0], "url": url}
        channels = {**_ends("x", "y"), "url": {"field": "url", "type": "nominal"}}
        yield from layer([row], "image", channels, aspect=False)


def _heat(panel: Panel, font: int) -> Iterator[Spec]:
    for heat in panel.of(HeatMap):
        values, said = np.asarray(heat.values, dtype=float), heat.values if heat.shown is None else heat.shown
        finite = values[np.isfinite(values)].tolist() or [0.0, 1.0]
        low, high = min(finite) if heat.low is None else heat.low, max(finite) if heat.high is None else heat.high
        below, above = _DARK_TEXT[heat.colors]
        x_names, y_names = names_along(panel, "x"), names_along(panel, "y")

        rows, texts = [], []
        for (row, column), value in np.ndenumerate(values):
            x, y, share = x_names[column], y_names[row], (value - low) / ((high - low) or 1.0)
            cell = {"x": x, "y": y, "value": _value(value)}
            hover = _said(heat.hover, row=y, column=x, value=said[row, column])
            rows.append({**cell, "hover": hover} if np.isfinite(value) else cell)
            if len(heat.texts):
                color = "black" if below < share < above else "white"
                texts.append(_text_row(x, y, heat.texts[row][column], color, font - 1))

        scale = {"scheme": heat.colors, "domain": [low, high], "clamp": True}
        legend = {"gradientLength": 100} if heat.scale else None
        fill = {"field": "value", "type": "quantitative", "scale": scale, "title": None, "legend": legend}
        absent = {"condition": {"test": "datum.value === null", "value": GRID}}
        yield from layer(rows, "rect", {"fill": {**absent, **fill}}, stroke=PAPER, invalid=None)
        yield from _text_layer(texts)


def _bars(panel: Panel, font: int) -> Iterator[Spec]:
    for bars in panel.of(Bars):
        across, along = ("y", "x") if bars.lying else ("x", "y")
        named, count = bool(names_along(panel, across)), len(bars.length)
        start = -bars.width / 2 if bars.offset is None else bars.offset
        colors = [bars.colors] * count if isinstance(bars.colors, str) else bars.colors
        columns = (bars.at, bars.length, bars.base, bars.error, colors, bars.texts, bars.notes)
        filled = [[None] * count if column is None or not len(column) else values_of(column) for column in columns]

        rows, errors, texts = [], [], []
        for at, length, base, half, color, text, note in zip(*filled, strict=True):
            if length is None:
                continue
            from_, to = base or 0.0, (base or 0.0) + length
            edges = {across: at} if named else {across: at + start, f"{across}2": at + start + bars.width}
            hover = _said(bars.hover, at=at if named else f"{at:g}", length=length, note=note or "")
            rows.append({**edges, along: from_, f"{along}2": to, "color": color, "name": bars.name, "hover": hover})
            middle = at if named else at + start + bars.width / 2
            if half:
                errors.append({across: middle, along: to - half, f"{along}2": to + half})
            if text:
                span = {across: middle, along: from_ + length / 2}
                texts.append(_text_row(**span, text=text, color=_ink(color), size=font - 1))

        thick = {"height" if bars.lying else "width": {"band": bars.width}} if named else {}
        ends = _ends(along) if named else _ends("x", "y")
        yield from layer(rows, "rect", {**ends, "color": "color"}, clip=_clip(panel), **thick)
        yield from layer(errors, "rule", _ends(along), color=GREY)
        yield from _text_layer(texts)


def _levels(panel: Panel, font: int) -> Iterator[Spec]:
    for axis, along, end in (("y", "x", "width"), ("x", "y", "height")):
        rows = [
            {axis: float(level.at), "color": level.look.color, "dash": _DASHES[level.look.dash], "hover": level.name}
            for level in panel.of(Level)
            if level.axis == axis
        ]
        span = {along: {"value": 0}, f"{along}2": {"value": end}}
        yield from layer(rows, "rule", {**span, "color": "color", "strokeDash": "dash"})


def _lines(panel: Panel, font: int) -> Iterator[Spec]:
    # A page of many runs is mostly these rows: each has what its layer draws and no more.
    bands, traces, points, errors, heads = list[Row](), list[Row](), list[Row](), list[Row](), list[Row]()
    for number, line in enumerate(panel.of(Line)):
        x, y, color = values_of(line.x), values_of(line.y), line.look.color
        of_line: Row = {"line": number, "color": color, "name": line.name}
        if line.low is not None and line.high is not None:
            edges = zip(x, values_of(line.low), values_of(line.high), strict=True)
            bands += [{**of_line, "x": at, "y": low, "y2": high} for at, low, high in edges]
        if line.error is not None:
            halves = [half or 0.0 for half in values_of(line.error)]
            ends = [(at, value, half) for at, value, half in zip(x, y, halves, strict=True) if value is not None]
            errors += [{**of_line, "x": at, "y": value - half, "y2": value + half} for at, value, half in ends]

        dash = {} if line.look.dash == "solid" else {"dash": _DASHES[line.look.dash]}
        of_trace = {**of_line, **dash, "width": line.width}
        of_points: Row = {"color": color, "name": line.name, "shape": SHAPES.get(line.look.symbol, line.look.symbol)}
        for index, (at, value) in enumerate(zip(x, y, strict=True)):
            if line.step and index:
                traces.append({**of_trace, "order": len(traces), "x": at, "y": y[index - 1]})
            traces.append({**of_trace, "order": len(traces), "x": at, "y": value})
            point = {**of_points, "x": at, "y": value, "opacity": float(line.dotted)}
            if line.hover and None not in (at, value):
                where = f", {panel.x.title} {at:g}" if panel.x.title and not panel.x.names else ""
                hover = _said(line.hover, x=at, y=value)
                point["hover"] = f"{line.name}{where}: {hover}" if line.name else hover
            if line.dotted or "hover" in point:
                points.append(point)
        if line.arrow:
            turn = 90.0 - math.degrees(math.atan2(y[-1] - y[-2], x[-1] - x[-2]))
            heads.append({**of_line, "x": x[-1], "y": y[-1], "turn": turn})

    clip, detail = _clip(panel), {"detail": {"field": "line", "type": "nominal"}}
    look = {"color": "color", "strokeDash": "dash", "strokeWidth": "width", **detail}
    yield from layer(bands, "area", {**_ends("y"), **detail, "color": "color"}, opacity=0.14, clip=clip)
    yield from layer(traces, "line", {**look, "order": {"field": "order", "type": "quantitative"}}, clip=clip)
    yield from layer(errors, "rule", {**_ends("y"), "color": "color"}, clip=clip)
    marked = {"color": "color", "shape": "shape", "opacity": "opacity"}
    yield from layer(points, "point", marked, filled=True, size=4 * font, clip=clip)
    yield from layer(heads, "point", {"color": "color", "angle": "turn"}, shape="triangle-up", filled=True, size=45)


def _dots(panel: Panel, font: int) -> Iterator[Spec]:
    rows, errors, texts = [], list[Row](), []
    for dots in panel.of(Dots):
        fields: list[tuple[Any, Any]] = [(dots.size, 7.0), (dots.hollow, False), (dots.ringed, False)]
        fields += [(words, "") for words in (dots.names, dots.notes, dots.labels, dots.inside)]
        fields += [(() if half is None else values_of(half), None) for half in (dots.x_error, dots.y_error)]
        columns = [values_of(dots.x), values_of(dots.y), dots.look_of_each, *(dots.of_each(*of) for of in fields)]
        for x, y, look, size, hollow, ringed, name, note, label, inside, x_half, y_half in zip(*columns, strict=True):
            if None in (x, y):
                continue
            point = {"x": x, "y": y, "name": name or dots.legend, "color": look.color}
            rows.append({
                **point, "shape": SHAPES.get(look.symbol, look.symbol), "fill": "transparent" if hollow else look.color,
                "size": (size * font / 9) ** 2, "opacity": dots.opacity,
                "edge": look.color if hollow else INK if ringed else "transparent",
                "hover": _said(dots.hover, name=name, note=note, x=x, y=y),
            })  # fmt: skip
            for axis, value, half in (("x", x, x_half), ("y", y, y_half)):
                if half:
                    errors.append({**point, axis: value - half, f"{axis}2": value + half})
            beside = {"align": "left", "dx": 5, "dy": -6} if label else {}
            if (label or inside) and _inside(panel.x, x) and _inside(panel.y, y):
                color = INK if label else "white"
                texts.append(_text_row(x, y, label or inside, color, font - 1, name=point["name"], **beside))

    clip = _clip(panel)
    for axis in ("x", "y"):
        of_axis = [row for row in errors if f"{axis}2" in row]
        yield from layer(of_axis, "rule", {**_ends(axis), "color": "color"}, clip=clip)
    look = {name: name for name in ("fill", "shape", "size", "opacity")}
    yield from layer(rows, "point", {**look, "stroke": "edge"}, strokeWidth=1.3, clip=clip)
    yield from _text_layer(texts)


def _texts(panel: Panel, font: int) -> Iterator[Spec]:
    edges: dict[str, dict[str, Spec]] = {"left": {"x": {"value": 0}}, "right": {"x": {"value": "width"}}}
    beyond = {("left", "right"): -5, ("right", "left"): 5}
    for edge in ("", *edges):
        of_edge = [text for text in panel.of(ChartText) if (text.x if text.x in edges else "") == edge]
        rows = [
            _text_row(
                _value(text.x), _value(text.y), text.text, text.color or INK, text.size * font / 9, align=text.anchor,
                dx=beyond.get((text.x, text.anchor), 0), weight="bold" if text.bold else "normal",
            )
            for text in of_edge
        ]  # fmt: skip
        boxed = [row for row, text in zip(rows, of_edge, strict=True) if text.boxed]
        yield from _text_layer(boxed, edges.get(edge), stroke=PAPER, strokeWidth=4, strokeJoin="round")
        yield from _text_layer(rows, edges.get(edge))


def _inside(axis: Axis, value: Any) -> bool:
    low, high = axis.limits
    return isinstance(value, str) or ((low is None or low <= value) and (high is None or value <= high))


def _clip(panel: Panel) -> bool:
    """Return whether limits leave marks out."""
    return any(end for axis in (panel.x, panel.y) for end in axis.limits)


def _said(template: str, **fields: Any) -> str:
    """Fill the fields of a hover text; other braces belong to names."""

    def filled(part: re.Match[str]) -> str:
        value = fields.get(part[1], part[0])
        return value if isinstance(value, str) else format(value, part[2] or "")

    return re.sub(r"\{(\w+)(?::([^}]*))?\}", filled, template)


def _value(value: Any) -> Any:
    """Return a name as it is, and a number with as many digits as a chart can show; None where it is not finite."""
    if isinstance(value, str):
        return value
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None


def values_of(values: Values) -> list[Any]:
    """Return names as they are and numbers as JSON has them."""
    return [_value(value) for value in values]


def _ink(color: str) -> str:
    """Return a colour of letters that can be read on a colour."""
    red, green, blue = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"
