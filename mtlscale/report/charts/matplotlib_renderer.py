"""Charts as matplotlib figures, for files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mtlscale.report.cells.number_format import count_text
from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.chart import (
    INK,
    Axis,
    Bars,
    Chart,
    ChartText,
    Dots,
    HeatMap,
    Image,
    Level,
    Line,
    Panel,
    Values,
)
from mtlscale.report.charts.colors import LineStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P", "x": "X", "star": "*",
            "triangle-down": "v", "line-ew": "_", "line-ns": "|"}  # fmt: skip
_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_ERRORS: dict[str, Any] = {"fmt": "none", "capsize": 2.5, "elinewidth": 0.9}
_LETTERS_PER_INCH = 11  # of names beside each other on an axis


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
        part.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color="#6b7280", wrap=True)
    _legend(part, chart, grid[: len(chart.panels)])


def _legend(part: Any, chart: Chart, grid: Sequence[Axes]) -> None:
    from matplotlib.patches import Patch

    handles = {text: handle for axes in grid for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles |= {text: Patch(color=color) for color, text in chart.key}
    if not handles or not (chart.legend or chart.key):
        return

    if chart.legend == "right":
        place, columns = "outside right upper", 1 + (len(handles) - 1) // max(8, int(chart.height / 0.19))
    else:
        place, columns = "outside lower center", int(chart.width * _LETTERS_PER_INCH / (max(map(len, handles)) + 6))
    columns = max(1, min(7, columns))
    part.legend(handles.values(), handles.keys(), frameon=False, fontsize=8, loc=place, ncols=columns)


@dataclass(frozen=True)
class _Target:
    """The axes that a panel is drawn on; `listed` says whether marks have entries in a legend."""

    axes: Axes
    panel: Panel
    listed: bool

    def x(self, values: Values) -> NDArray[np.float64]:
        return _positions(self.panel.x, values)

    def y(self, values: Values) -> NDArray[np.float64]:
        return _positions(self.panel.y, values)

    def entry(self, name: str) -> str:
        """Return the label of a mark, which legends leave out where it begins with an underscore."""
        return name if self.listed and name else "_"


def _positions(axis: Axis, values: Values) -> NDArray[np.float64]:
    """Return numbers as they are, names as their positions on the axis."""
    places: dict[Any, int] = {name: position for position, name in enumerate(axis.names)}
    return np.array([np.nan if value is None else places.get(value, value) for value in values], dtype=float)


def _draw_panel(axes: Axes, panel: Panel, x_title: str, inches: float, *, listed: bool) -> None:
    if not panel.marks:
        axes.set_axis_off()
        return

    _prepare(axes, panel.x, "x", inches)
    _prepare(axes, panel.y, "y", inches)
    target = _Target(axes, panel, listed)
    for mark in panel.marks:
        _DRAW[type(mark)](target, mark)

    _limit(axes, panel.x, "x")
    _limit(axes, panel.y, "y")
    axes.set_xlabel(x_title)
    axes.set_ylabel(panel.y.title)
    if panel.title:
        axes.set_title(panel.title, color=panel.title_color or INK)
    if panel.equal:
        axes.set_aspect("equal")
    if not (panel.x.visible or panel.y.visible):
        axes.set_axis_off()


def _prepare(axes: Axes, axis: Axis, name: str, inches: float) -> None:
    """Set scale, ticks and grid of an axis."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, NullLocator

    of_axis: Any = getattr(axes, f"{name}axis")
    if axis.log:
        getattr(axes, f"set_{name}scale")("log")
        of_axis.set_major_formatter(lambda value, _: count_text(value))
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
    """Set the range of an axis once everything is drawn."""
    from matplotlib.ticker import LogLocator

    low, high = axis.limits
    if axis.names and axis.limits == (None, None):
        low, high = -0.5, len(axis.names) - 0.5
    getattr(axes, f"set_{name}lim")(low, high)
    if axis.reverse:
        getattr(axes, f"invert_{name}axis")()
    if axis.log and not axis.ticks:
        low, high = getattr(axes, f"get_{name}lim")()
        subs = (1.0, 2.0, 5.0) if high < 50 * low else (1.0,)
        getattr(axes, f"{name}axis").set_major_locator(LogLocator(subs=subs))


def _errors(values: Values | None) -> Any:
    return None if values is None else np.nan_to_num(np.asarray(values, dtype=float))


def _line(target: _Target, line: Line) -> None:
    x, y = target.x(line.x), target.y(line.y)
    if line.low is not None and line.high is not None:
        band = target.y(line.low), target.y(line.high)
        target.axes.fill_between(x, *band, color=line.look.color, alpha=0.13, linewidth=0)

    target.axes.errorbar(
        x, y, yerr=_errors(line.error), label=target.entry(line.name), color=line.look.color,
        linestyle=_DASHES[line.look.dash], linewidth=line.width, capsize=2.5, elinewidth=0.9,
        marker=_MARKERS[line.look.symbol] if line.dotted else None, markersize=5,
        drawstyle="steps-post" if line.step else "default",
    )  # fmt: skip
    if line.arrow:
        arrow = {"arrowstyle": "-|>", "color": line.look.color, "shrinkB": 0}
        target.axes.annotate("", (x[-1], y[-1]), (x[-2], y[-2]), arrowprops=arrow)


def _dots(target: _Target, dots: Dots) -> None:
    axes, x, y = target.axes, target.x(dots.x), target.y(dots.y)
    sizes, names = np.array(dots.of_each(dots.size, 7.0)), dots.names if dots.listed else ()
    kinds = zip(
        dots.look_of_each, dots.of_each(dots.ringed, False), dots.of_each(dots.hollow, False), dots.of_each(names, ""),
        strict=True,
    )  # fmt: skip

    groups: dict[tuple[LineStyle, bool, bool, str], list[int]] = {}
    for index, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(index)

    for (look, ringed, hollow, name), members in groups.items():
        note = dots.notes[members[0]] if name and dots.notes else ""
        edge = look.color if hollow else INK if ringed else "none"
        axes.scatter(
            x[members], y[members], s=sizes[members] ** 2, marker=_MARKERS[look.symbol], alpha=dots.opacity, zorder=3,
            linewidths=1.2, facecolors="none" if hollow else look.color,
            edgecolors=None if look.symbol.startswith("line") else edge,
            label=target.entry(f"{name}{note}" or dots.legend),
        )  # fmt: skip
        errors = [None if error is None else _errors(error)[members] for error in (dots.x_error, dots.y_error)]
        if any(error is not None for error in errors):
            axes.errorbar(x[members], y[members], xerr=errors[0], yerr=errors[1], ecolor=look.color, **_ERRORS)

    beside: dict[str, Any] = {"xytext": (5, 4)}
    inside: dict[str, Any] = {"xytext": (0, 0), "color": "white", "ha": "center", "va": "center", "zorder": 4}
    for texts, options in ((dots.labels, beside), (dots.inside, inside)):
        for point, text in zip(zip(x, y, strict=True), texts, strict=False):
            if text and np.isfinite(point).all():
                axes.annotate(text, point, textcoords="offset points", fontsize=7, **options)


def _bars(target: _Target, bars: Bars) -> None:
    start = -bars.width / 2 if bars.offset is None else bars.offset
    middle = (target.y if bars.lying else target.x)(bars.at) + start + bars.width / 2
    length = np.asarray(bars.length, dtype=float)
    base = np.zeros(len(length)) if bars.base is None else np.asarray(bars.base, dtype=float)
    options: dict[str, Any] = {"color": bars.colors, "label": target.entry(bars.name)}

    if bars.lying:
        target.axes.barh(middle, length, bars.width, left=base, **options)
    else:
        target.axes.bar(middle, length, bars.width, bottom=base, **options)
    if bars.error is not None:
        x, y = (base + length, middle) if bars.lying else (middle, base + length)
        errors: dict[str, Any] = {"xerr" if bars.lying else "yerr": _errors(bars.error)}
        target.axes.errorbar(x, y, ecolor="#4a4f57", **errors, **_ERRORS)

    colors = [bars.colors] * len(length) if isinstance(bars.colors, str) else bars.colors
    for position, half, color, text in zip(middle, base + length / 2, colors, bars.texts, strict=False):
        place = (half, position) if bars.lying else (position, half)
        target.axes.text(*place, text, ha="center", va="center", color=_ink(color), fontsize=7.5)


def _heat(target: _Target, heat: HeatMap) -> None:
    axes, values = target.axes, np.asarray(heat.values, dtype=float)
    image = axes.imshow(
        values, aspect="auto", origin="lower", vmin=heat.low, vmax=heat.high, cmap=heat.colors.replace("V", "v")
    )
    axes.set_facecolor("#e6e8ec")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(visible=False)
    if heat.scale:
        scale = axes.figure.colorbar(image, ax=axes, fraction=0.045, pad=0.02)
        scale.formatter.set_powerlimits((-2, 3))  # type: ignore[attr-defined]

    for row, texts in enumerate(heat.texts):
        for column, text in enumerate(texts):
            color = image.to_rgba(values[row, column])[:3] if np.isfinite(values[row, column]) else "white"
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=_ink(color))


def _image(target: _Target, image: Image) -> None:
    target.axes.imshow(image.pixels)


def _level(target: _Target, level: Level) -> None:
    draw_line = target.axes.axhline if level.axis == "y" else target.axes.axvline
    look: dict[str, Any] = {"color": level.look.color, "linewidth": 0.9, "linestyle": _DASHES[level.look.dash]}
    draw_line(level.at, label=target.entry(level.name), zorder=0, **look)


def _text(target: _Target, text: ChartText) -> None:
    on_edge = text.x in ("left", "right")
    x = float(text.x == "right") if on_edge else target.x([text.x])[0]
    box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    target.axes.annotate(
        text.text, (x, target.y([text.y])[0]), xycoords=("axes fraction" if on_edge else "data", "data"),
        xytext=({"left": 4, "right": -4}.get(text.anchor, 0) if on_edge else 0, 0), textcoords="offset points",
        ha=text.anchor, va="center", fontsize=text.size, color=text.color or INK,
        fontweight="bold" if text.bold else "normal", bbox=box if text.boxed else None, annotation_clip=False,
    )  # fmt: skip


_DRAW: dict[type, Callable[[_Target, Any], None]] = {
    Line: _line, Dots: _dots, Bars: _bars, HeatMap: _heat, Image: _image, Level: _level, ChartText: _text
}  # fmt: skip


def _ink(color: Any) -> str:
    """Return a colour of letters that can be read on a colour."""
    from matplotlib.colors import to_rgb

    return "white" if float(np.dot(to_rgb(color), (0.299, 0.587, 0.114))) < 0.55 else INK
