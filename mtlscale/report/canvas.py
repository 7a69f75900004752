"""What all figures that are drawn into files have in common."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.records import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS, MOST_PIXELS = 150, 4000  # an inch, and of height: what is higher is drawn smaller
MOST_LINES = 12  # tasks with a line, or numbers in the cells of a heat map


def save(figure: Figure, path: Path) -> Path:
    """Write the figure whole or not at all; the suffix says the format, .png or .svg."""
    buffer = io.BytesIO()
    with style():
        dots = min(DOTS, MOST_PIXELS / figure.get_figheight())
        figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dots, facecolor="white")
    write_atomically(path, buffer.getvalue())
    return path


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@contextmanager
def style() -> Iterator[None]:
    import matplotlib

    settings: dict[Any, Any] = {
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#b5b9c0",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e8ec",
        "xtick.color": "#4a4f57",
        "ytick.color": "#4a4f57",
        "text.color": "#1f2328",
        "axes.labelcolor": "#4a4f57",
        "text.parse_math": False,  # names are the user's and may hold a dollar
        "svg.hashsalt": "mtlscale",
    }
    with matplotlib.rc_context(settings):
        yield
