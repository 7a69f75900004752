"""Quality against cost: methods as dots, with the Pareto front as a line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from mtlscale.report.charts.chart import DASHED, Axis, Dots, Line, Panel
from mtlscale.report.charts.colors import LineStyles
from mtlscale.report.charts.label_placement import with_room


def trade_off(
    points: pd.DataFrame,
    styles: LineStyles,
    x: Axis,
    y: Axis,
    *,
    special: ArrayLike,
    hover: str,
    notes: Sequence[str] = (),
    heights: ArrayLike | None = None,
) -> Panel:
    """Return a panel of methods; those with room around them are named, special ones and those on the front first.

    Args:
        points: By method: `x`, `y`, `front` (whether it is on the Pareto front), and `ci`, half the interval of `y`, if
            known.
        styles: The looks of the methods.
        x: The axis of the cost.
        y: The axis of the quality.
        special: Whether a method is drawn larger.
        hover: The text under the mouse.
        notes: What is said of each method beside its name.
        heights: The positions that are seen, where the axis leaves some out; default: those of the quality.
    """
    front, names = points[points["front"]].sort_values("x"), [str(method) for method in points.index]
    first = points["front"].to_numpy(bool) | np.asarray(special, dtype=bool)
    across = np.log(points["x"]) if x.log else points["x"]
    room = with_room(across, points["y"] if heights is None else heights, first)

    dots = Dots(
        x=points["x"],
        y=points["y"],
        y_error=points.get("ci"),
        looks=[styles[name] for name in names],
        names=names,
        notes=notes,
        listed=True,
        labels=[name if has_room else "" for name, has_room in zip(names, room, strict=True)],
        size=[9.0 if is_special else 7.0 for is_special in np.asarray(special, dtype=bool)],
        ringed=list(points["front"]),
        hover=hover,
    )
    line = Line(x=front["x"], y=front["y"], look=DASHED, width=1.0, hover="")
    return Panel(marks=[line, dots], x=x, y=y)
