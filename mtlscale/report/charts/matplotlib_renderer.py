"""Charts as matplotlib figures, for files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.chart import INK, Axis, Bars, Chart, Dots, HeatMap, Image, Level, Line, Panel, Text, Values

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "X", "star": "*",
            "triangle-down": "v", "line-ew": "_", "line-ns": "|"}  # fmt: skip
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_LETTERS_PER_INCH = 11  # of names beside each other on an axis
_QUIET = "#6b7280"


def draw(*charts: Chart) -> Figure:
    """Draw charts below each other; `canvas.save` writes the figure."""
    heights = [chart.height for chart in charts]
    with style():
        figure = new_figure(max(chart.width for chart in charts), sum(heights))
        parts: Any = [figure]
        if len(charts) > 1:
            parts = figure.subfigures(len(charts), 1, height_ratios=heights, squeeze=False)[:, 0]
        for part, chart, after in zip(parts, charts, [*charts[1:], None], strict=True):
            said_below = after is not None and after.note == chart.note
            _draw_chart(part, chart, "" if said_below else chart.note)
    return figure


def _draw_chart(part: Any, chart: Chart, note: str) -> None:
    weights = [panel.weight for panel in chart.panels[: chart.across]]
    grid = part.subplots(chart.down, chart.across, sharey=chart.share_y, width_ratios=weights, squeeze=False).flatten()

    for index, (axes, panel) in enumerate(zip(grid, chart.panels, strict=False)):
        inches = chart.width * panel.weight / sum(weights)
        _draw_panel(axes, panel, chart.x_title(index), inches, listed=bool(chart.legend))
    for axes in grid[len(chart.panels) :]:
        axes.remove()

    if chart.title:
        part.suptitle(chart.title, x=0.01, ha="left", fontweight="bold", fontsize=11)
    if note:
        part.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=_QUIET, wrap=True)
    _legend(part, chart, grid[: len(chart.panels)])


def _legend(part: Any, chart: Chart, grid: Sequence[Axes]) -> None:
    from matplotlib.patches import Patch

    handles = {text: handle for axes in grid for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles |= {text: Patch(color=color) for color, text in chart.key}
    if not handles or not (chart.legend or chart.key):
        return

    if chart.legend == "right":
        rows = max(8, int(chart.height / 0.19))
        options: dict[str, Any] = {"loc": "outside right upper", "ncols": 1 + (len(handles) - 1) // rows}
    else:
        letters = max(map(len, handles)) + 6
        options = {
            "loc": "outside lower center",
            "ncols": max(1, min(7, int(chart.width * _LETTERS_PER_INCH / letters))),
        }
    title = chart.legend_title or None
    part.legend(handles.values(), handles.keys(), frameon=False, fontsize=8, title=title, **options)


def _draw_panel(axes: Axes, panel: Panel, x_title: str, inches: float, *, listed: bool) -> None:
    if not panel.marks:
        axes.set_axis_off()
        return

    for axis, name in ((panel.x, "x"), (panel.y, "y")):
        _prepare(axes, axis, name, inches)
    positions = [_positions(panel.x), _positions(panel.y)]
    for mark in panel.marks:
        if isinstance(mark, Line):
            _line(axes, mark, positions, listed=listed)
        elif isinstance(mark, Dots):
            _dots(axes, mark, positions, listed=listed)
        elif isinstance(mark, Bars):
            _bars(axes, mark, positions, listed=listed)
        elif isinstance(mark, HeatMap):
            _heat(axes, mark)
        elif isinstance(mark, Image):
            axes.imshow(mark.pixels)
        elif isinstance(mark, Level):
            draw_level = axes.axhline if mark.axis == "y" else axes.axvline
            dash = _DASHES[mark.look.dash]
            label = mark.name if listed and mark.name else "_"
            draw_level(mark.at, color=mark.look.color, linewidth=0.9, linestyle=dash, zorder=0, label=label)
        else:
            _text(axes, mark, positions)

    for axis, name in ((panel.x, "x"), (panel.y, "y")):
        _limit(axes, axis, name)
    axes.set_xlabel(x_title)
    axes.set_ylabel(panel.y.title)
    if panel.title:
        axes.set_title(panel.title, **({"color": panel.title_color} if panel.title_color else {}))  # type: ignore[arg-type]
    if panel.equal:
        axes.set_aspect("equal")
    if not (panel.x.visible or panel.y.visible):
        axes.set_axis_off()


def _prepare(axes: Axes, axis: Axis, name: str, inches: float) -> None:
    """Set scale, ticks and grid of an axis."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

    of_axis: Any = getattr(axes, f"{name}axis")
    if axis.log:
        getattr(axes, f"set_{name}scale")("log")
        of_axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        of_axis.set_major_formatter(lambda value, _: number_text(value))
        of_axis.set_minor_formatter(NullFormatter())
    elif axis.whole:
        of_axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))

    texts = dict(enumerate(axis.ticks.get(one, one) for one in axis.names)) if axis.names else axis.ticks
    if texts:
        options: dict[str, Any] = {"fontsize": 7} if len(texts) > 20 else {}
        if name == "x" and max(map(len, texts.values())) * len(texts) > _LETTERS_PER_INCH * inches:
            options |= {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
        of_axis.set_ticks(list(texts), list(texts.values()), **options)
        of_axis.set_minor_locator(NullLocator())

    if axis.opposite:
        of_axis.tick_top()
    if not axis.grid or axis.names:
        axes.grid(visible=axis.grid and not axis.names, axis=name)  # type: ignore[arg-type]
    if not axis.grid:
        of_axis.set_tick_params(length=0)
    if not axis.visible:
        of_axis.set_ticks([])
    if not (axis.visible and axis.grid):
        axes.spines[["top", "bottom"] if name == "x" else ["left", "right"]].set_visible(False)


def _limit(axes: Axes, axis: Axis, name: str) -> None:
    low, high = axis.limits
    if axis.names and axis.limits == (None, None):
        low, high = -0.5, len(axis.names) - 0.5
    now = getattr(axes, f"get_{name}lim")()
    low, high = (given if given is not None else edge for given, edge in zip((low, high), sorted(now), strict=True))
    getattr(axes, f"set_{name}lim")(*((high, low) if axis.reverse else (low, high)))


def _positions(axis: Axis) -> dict[str, int]:
    return {name: position for position, name in enumerate(axis.names)}


def _numbers(values: Values, positions: dict[str, int]) -> list[float]:
    return [float(positions[value]) if isinstance(value, str) else _number(value) for value in values]


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)


def _errors(values: Values | None) -> Any:
    return None if values is None else np.nan_to_num(np.asarray(values, dtype=float))


def _line(axes: Axes, line: Line, positions: list[dict[str, int]], *, listed: bool) -> None:
    x, y = (_numbers(values, names) for values, names in zip((line.x, line.y), positions, strict=True))
    if line.low is not None and line.high is not None:
        low, high = (np.asarray(end, dtype=float) for end in (line.low, line.high))
        axes.fill_between(x, low, high, color=line.look.color, alpha=0.13, linewidth=0)

    axes.errorbar(
        x, y, yerr=_errors(line.error), label=line.name if listed and line.name else "_", color=line.look.color,
        linestyle=_DASHES[line.look.dash], linewidth=line.width, capsize=2.5, elinewidth=0.9,
        marker=_MARKERS[line.look.symbol] if line.dotted else None, markersize=5,
        drawstyle="steps-post" if line.step else "default",
    )  # fmt: skip
    if line.arrow:
        arrow = {"arrowstyle": "-|>", "color": line.look.color, "shrinkB": 0}
        axes.annotate("", (x[-1], y[-1]), (x[-2], y[-2]), arrowprops=arrow)


def _dots(axes: Axes, dots: Dots, positions: list[dict[str, int]], *, listed: bool) -> None:
    x, y = (np.array(_numbers(values, names)) for values, names in zip((dots.x, dots.y), positions, strict=True))
    looks, sizes = dots.look_of_each, dots.of_each(dots.size, 7.0)
    ringed, hollow = dots.of_each(dots.ringed, False), dots.of_each(dots.hollow, False)
    named = listed and dots.listed

    groups: dict[Any, list[int]] = {}
    for index, look in enumerate(looks):
        groups.setdefault((look, ringed[index], hollow[index], dots.names[index] if named else ""), []).append(index)

    for (look, is_ringed, is_hollow, name), members in groups.items():
        note = dots.notes[members[0]] if name and dots.notes else ""
        marker = _MARKERS[look.symbol]
        edge = look.color if is_hollow else INK if is_ringed else "none"
        axes.scatter(
            x[members], y[members], s=[sizes[index] ** 2 for index in members], marker=marker, alpha=dots.opacity,
            zorder=3, linewidths=1.2, facecolors="none" if is_hollow else look.color,
            edgecolors=None if marker in "_|" else edge,
            label=f"{name}{note}" if name else dots.legend if listed and dots.legend else "_",
        )  # fmt: skip
        errors = [None if error is None else _errors(error)[members] for error in (dots.x_error, dots.y_error)]
        if any(error is not None for error in errors):
            options: dict[str, Any] = {"fmt": "none", "ecolor": look.color, "capsize": 2.5, "elinewidth": 0.9}
            axes.errorbar(x[members], y[members], xerr=errors[0], yerr=errors[1], **options)

    for texts, options in ((dots.labels, {"xytext": (5, 4)}), (dots.inside, {"xytext": (0, 0), "color": "white"})):
        centred = {"ha": "center", "va": "center", "zorder": 4} if texts is dots.inside else {}
        for point_x, point_y, text in zip(x, y, texts, strict=False):
            if text and np.isfinite([point_x, point_y]).all():
                axes.annotate(text, (point_x, point_y), textcoords="offset points", fontsize=7, **options, **centred)  # type: ignore[arg-type]


def _bars(axes: Axes, bars: Bars, positions: list[dict[str, int]], *, listed: bool) -> None:
    start = -bars.width / 2 if bars.offset is None else bars.offset
    middle = np.array(_numbers(bars.at, positions[1 if bars.lying else 0])) + start + bars.width / 2
    length = np.asarray(bars.length, dtype=float)
    base = np.zeros(len(length)) if bars.base is None else np.asarray(bars.base, dtype=float)
    ends = base + length
    options: dict[str, Any] = {"color": bars.colors, "label": bars.name if listed and bars.name else "_"}
    error_options: dict[str, Any] = {"fmt": "none", "ecolor": "#4a4f57", "elinewidth": 0.9, "capsize": 2}

    if bars.lying:
        axes.barh(middle, length, bars.width, left=base, **options)
    else:
        axes.bar(middle, length, bars.width, bottom=base, **options)
    if bars.error is not None:
        errors: dict[str, Any] = {"xerr" if bars.lying else "yerr": _errors(bars.error)}
        x, y = (ends, middle) if bars.lying else (middle, ends)
        axes.errorbar(x, y, **errors, **error_options)

    for position, half, color, text in zip(
        middle, base + length / 2, [bars.colors] * len(length) if isinstance(bars.colors, str) else bars.colors,
        bars.texts, strict=False,
    ):  # fmt: skip
        place = (half, position) if bars.lying else (position, half)
        axes.text(*place, text, ha="center", va="center", color=_ink(color), fontsize=7.5)


def _heat(axes: Axes, heat: HeatMap) -> None:
    image = axes.imshow(
        np.asarray(heat.values, dtype=float), aspect="auto", origin="lower", vmin=heat.low, vmax=heat.high,
        cmap=heat.colors if heat.colors != "Viridis" else "viridis",
    )  # fmt: skip
    axes.set_facecolor("#e6e8ec")
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    if heat.scale:
        scale = axes.figure.colorbar(image, ax=axes, fraction=0.045, pad=0.02)
        scale.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]

    for row, texts in enumerate(heat.texts):
        for column, text in enumerate(texts):
            color = image.to_rgba(heat.values[row, column])[:3] if np.isfinite(heat.values[row, column]) else "#ffffff"
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=_ink(color))


def _text(axes: Axes, text: Text, positions: list[dict[str, int]]) -> None:
    y = _numbers([text.y], positions[1])[0]
    options: dict[str, Any] = {"va": "center", "fontsize": text.size, "color": text.color or INK}
    options |= {"fontweight": "bold"} if text.bold else {}
    if text.boxed:
        options["bbox"] = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    if text.x in ("left", "right"):
        edge: Any = (0.0 if text.x == "left" else 1.0, y)
        shift = {"left": 4, "right": -4}.get(text.anchor, 0)
        across: Any = ("axes fraction", "data")
        axes.annotate(
            text.text, edge, xycoords=across, xytext=(shift, 0), textcoords="offset points", ha=text.anchor, **options
        )
    else:
        axes.text(_numbers([text.x], positions[0])[0], y, text.text, ha=text.anchor, **options)


def _ink(color: Any) -> str:
    """Return a colour of letters that can be read on a colour."""
    from matplotlib.colors import to_rgb

    return "white" if float(np.dot(to_rgb(color), (0.299, 0.587, 0.114))) < 0.55 else INK


def number_text(value: float) -> str:
    """Format a number of a logarithmic axis in three digits: 12,300,000 as 12.3 M."""
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"
