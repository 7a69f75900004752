"""Conflict ratios by module: the share of pairs of tasks whose gradients oppose each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from mtlscale.report.charts.canvas import new_figure, style
from mtlscale.report.charts.colors import colors
from mtlscale.report.charts.plotly_canvas import interval, label, new_plot, with_legend
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.stats.traces import by_method

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from plotly.graph_objects import Figure

When = Literal["mean", "last"]
WHEN: dict[When, str] = {"mean": "mean over the epochs", "last": "last epoch"}


def conflict_ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the conflict ratios in percent, one row per method (with its phase, where it has one), module and `when`.

    Columns: `name`, `method`, `module` (0: the mean of all), `when`, `mean` over seeds and half its 95 % interval `ci`.
    """
    rows = []
    for method, of_method in by_method(frame).items():
        for phase, of_phase in of_method.groupby("phase", sort=False):
            name = ", ".join(filter(None, (method, str(phase))))
            table = of_phase.pivot_table(index=["seed", "epoch"], columns="place", values="value") * 100.0
            table.insert(0, 0, table.mean(axis=1))
            by_seed = table.groupby(level="seed")
            for when, values in (("mean", by_seed.mean()), ("last", by_seed.last())):
                widths = half_width(values.std(), values.count())
                rows += [
                    (name, method, module, when, mean, width)
                    for module, mean, width in zip(values.columns, values.mean(), widths, strict=True)
                ]

    return pd.DataFrame(rows, columns=["name", "method", "module", "when", "mean", "ci"])


def conflict_texts(ratios: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table, two rows a method."""
    modules = sorted(ratios["module"].unique(), key=lambda module: (module == 0, module))
    header = ["method", "over", *(f"module {module}" if module else "all" for module in modules)]
    rows = []
    for (name, when), group in ratios.groupby(["name", "when"], sort=False):
        by_module = group.set_index("module")
        cells = [_text(by_module, int(module)) for module in modules]
        rows.append([str(name), next(words for key, words in WHEN.items() if key == when), *cells])
    return header, rows


def conflict_figure(ratios: pd.DataFrame) -> Drawing:
    """Draw bars by module, methods side by side.

    A bar is the mean over the epochs with its interval, a dash the last epoch.
    """
    shades = _shades(ratios)
    modules = _modules(ratios)
    width = 0.84 / len(shades)

    with style():
        figure = new_figure(3.6 + max(3.4, 0.26 * len(modules) * len(shades)), 3.6)
        panel = figure.subplots()

        for position, (name, color) in enumerate(shades.items()):
            mean, last_epoch = (_ratios_by_module(ratios, name, when) for when in ("mean", "last"))
            heights = mean["mean"]
            centers = np.array([modules.index(int(module)) for module in mean.index]) + (position + 0.5) * width - 0.42
            panel.bar(centers, heights, 0.9 * width, color=color, label=name)
            if mean["ci"].notna().any():
                panel.errorbar(centers, heights, mean["ci"], fmt="none", ecolor="#4a4f57", elinewidth=0.9, capsize=2)
            panel.scatter(centers, last_epoch["mean"], marker="_", s=(330 * width) ** 1.1, color="#1f2328", zorder=3)

        panel.set_xticks(range(len(modules)), [str(module) for module in modules])
        panel.set_xlabel("module, input side first")
        panel.grid(axis="x", visible=False)
        panel.set_ylim(bottom=0)
        panel.set_title("conflicting pairs of tasks, % (dash: last epoch)")
        figure.legend(loc="outside right upper", frameon=False)

    return figure


def conflict_plot(ratios: pd.DataFrame) -> Figure:
    """Draw the same as a plotly figure for the page."""
    figure = new_plot(330)
    for name, color in _shades(ratios).items():
        mean, last_epoch = (_ratios_by_module(ratios, name, when) for when in ("mean", "last"))
        figure.add_bar(
            x=[int(module) for module in mean.index],
            y=mean["mean"].tolist(),
            error_y=interval(mean["ci"]),
            name=label(name),
            marker={"color": color},
            customdata=[None if np.isnan(value) else value for value in last_epoch["mean"].reindex(mean.index)],
            hovertemplate="%{y:.2f} %, last epoch %{customdata:.2f} %",
            showlegend=True,
        )

    figure.update_xaxes(title={"text": "module, input side first", "standoff": 6}, dtick=1)
    figure.update_yaxes(ticksuffix=" %", rangemode="tozero")
    return with_legend(figure)


def _shades(ratios: pd.DataFrame) -> dict[str, str]:
    return colors(list(dict.fromkeys(ratios["name"])), None)


def _modules(ratios: pd.DataFrame) -> list[int]:
    return sorted(int(module) for module in ratios["module"].unique() if module)


def _ratios_by_module(ratios: pd.DataFrame, name: str, when: str) -> pd.DataFrame:
    """Return the rows of a name and `when` by module, without the mean of all."""
    selected = (ratios["name"] == name) & (ratios["when"] == when) & (ratios["module"] > 0)
    return ratios[selected].set_index("module")


def _text(conflicts: pd.DataFrame, module: int) -> str:
    if module not in conflicts.index:
        return "–"
    mean, width = conflicts.loc[module, ["mean", "ci"]].to_numpy(dtype=float)
    return f"{mean:.2f}" if np.isnan(width) else f"{mean:.2f} ± {width:.2f}"
