"""Conflict ratios by module: the share of pairs of tasks whose gradients oppose each other."""

from __future__ import annotations

from typing import Literal

import pandas as pd

from mtlscale.report.cells.number_format import EMPTY, with_width
from mtlscale.report.charts.chart import INK, Axis, Bars, Chart, Dots, Panel
from mtlscale.report.charts.colors import LineStyle, colors
from mtlscale.report.stats.statistics import half_width
from mtlscale.report.stats.traces import by_method

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


def conflict_chart(ratios: pd.DataFrame) -> Chart:
    """Return bars by module, methods side by side.

    A bar is the mean over the epochs with its interval, a dash the last epoch.
    """
    shades = colors(list(dict.fromkeys(ratios["name"])), None)
    modules = sorted(int(module) for module in ratios["module"].unique() if module)
    width = 0.84 / len(shades)

    marks: list[Bars | Dots] = []
    for position, (name, color) in enumerate(shades.items()):
        mean, last_epoch = (_ratios_by_module(ratios, name, when) for when in ("mean", "last"))
        start = position * width - 0.42
        marks.append(
            Bars(
                at=mean.index,
                length=mean["mean"],
                width=0.9 * width,
                offset=start + 0.05 * width,
                name=name,
                colors=color,
                error=mean["ci"],
                notes=[f", last epoch {value:.2f} %" for value in last_epoch["mean"].reindex(mean.index)],
                hover="{length:.2f} %{note}",
            )
        )
        marks.append(
            Dots(
                x=last_epoch.index.to_numpy(float) + start + width / 2,
                y=last_epoch["mean"],
                looks=LineStyle(INK, symbol="line-ew"),
                size=45 * width,
                hover="last epoch {y:.2f} %",
                aside=True,
            )
        )

    x = Axis(title="module, input side first", ticks={module: str(module) for module in modules}, grid=False)
    return Chart(
        panels=[Panel(marks=marks, x=x, y=Axis(title="conflicting pairs of tasks, %", limits=(0, None)))],
        title="Conflict ratio by module",
        note="Share of pairs of tasks whose gradients oppose each other: mean over the epochs, interval over seeds; "
        "dash: the last epoch.",
        file="conflict_ratio",
        width=3.6 + max(3.4, 0.26 * len(modules) * len(shades)),
        legend="right",
    )


def _ratios_by_module(ratios: pd.DataFrame, name: str, when: str) -> pd.DataFrame:
    """Return the rows of a name and `when` by module, without the mean of all."""
    selected = (ratios["name"] == name) & (ratios["when"] == when) & (ratios["module"] > 0)
    return ratios[selected].set_index("module")


def _text(conflicts: pd.DataFrame, module: int) -> str:
    if module not in conflicts.index:
        return EMPTY
    return with_width(*conflicts.loc[module, ["mean", "ci"]].to_numpy(dtype=float))
