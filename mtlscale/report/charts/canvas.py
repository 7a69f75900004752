"""Canvas, style and file format of all figures that are drawn into files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mtlscale.records import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOTS, MOST_PIXELS = 150, 4000  # dots per inch; pixels of height, above which the resolution drops
MOST_LINES = 12  # tasks that get a line each, or numbers in the cells of a heat map


def save(figure: Figure, path: Path) -> Path:
    """Write the figure whole or not at all; the file's suffix, .png or .svg, gives the format."""
    buffer = io.BytesIO()
    with style():
        dots = min(DOTS, MOST_PIXELS / figure.get_figheight())
        figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=dots, facecolor="white")
    write_atomically(path, buffer.getvalue())
    return path


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of that size in inches, whose layout keeps labels and legends apart."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


@contextmanager
def style() -> Iterator[None]:
    """Apply the style of the report's figures while the context is open."""
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
