"""The looks of methods: one colour, marker and dash each, the same in every figure of a report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mtlscale.records import RunRecord

if TYPE_CHECKING:
    from mtlscale.report.tables.table import Table

# Twelve hues, light and then dark: each has a contrast of at least 3:1 to white paper and to the dark page.
HUES = 12
COLORS = (
    "#4390ee", "#d76f04", "#43a84c", "#e06065", "#11a3a9", "#b96bcb", "#a98d07", "#d4609d", "#907ae9", "#11a68b",
    "#bf8105", "#0a9cce",
    "#1b6cc7", "#a55401", "#148428", "#bc4049", "#0f7c81", "#984dab", "#816c06", "#b1417e", "#6f57c2", "#04806a",
    "#926203", "#0b779e",
)  # fmt: skip
GREY = "#7d828b"
# From dark to light, even to the eye, in equal steps.
VIRIDIS = ("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725")
PLASMA = ("#0d0887", "#6a00a8", "#b12a90", "#e16462", "#fca636", "#f0f921")

_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")
_DASHES = ("solid", "dash", "dot", "dashdot")


@dataclass(frozen=True)
class LineStyle:
    """Look of a method."""

    color: str
    symbol: str = "circle"
    dash: str = "solid"


LineStyles = Mapping[str, LineStyle]


def line_styles(names: Sequence[str], baseline: str | None = None) -> dict[str, LineStyle]:
    """Give each name a look by its position.

    96 names differ in colour and marker. The baseline is grey and takes no position.
    """
    coloured = [name for name in dict.fromkeys(names) if name != baseline]
    look_of = {}
    for position, name in enumerate(coloured):
        shape, color = position // HUES, COLORS[position % len(COLORS)]
        look_of[name] = LineStyle(color, _SYMBOLS[shape % len(_SYMBOLS)], _DASHES[shape % len(_DASHES)])
    return look_of if baseline is None else {**look_of, baseline: LineStyle(GREY)}


def page_looks(records: Iterable[RunRecord], tables: Iterable[Table]) -> dict[str, LineStyle]:
    """Give all methods of a report a look, in the order of their first runs, whatever their data set."""
    baseline = next((table.baseline for table in tables if table.baseline), None)
    return line_styles([record.method for record in records], baseline)


def colors(names: Sequence[str], baseline: str | None) -> dict[str, str]:
    """Return the colours alone, for tasks and others that have no look in the report."""
    return {name: look.color for name, look in line_styles(names, baseline).items()}


def ramp(colors: Sequence[str], shares: ArrayLike) -> NDArray[np.uint8]:
    """Return the colours [..., 3] at shares [...] of the way through a row of colours."""
    steps = np.array([list(bytes.fromhex(color[1:])) for color in colors])
    at = np.asarray(shares, dtype=float).clip(0, 1) * (len(colors) - 1)
    channels = [np.interp(at, np.arange(len(colors)), steps[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=-1).round().astype(np.uint8)
