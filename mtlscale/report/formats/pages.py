"""Building blocks of all pages: templates, one style, one script, and charts drawn when they come into view.

Everything a user or a library has named is escaped by the templates; nothing is fetched from anywhere.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from mtlscale.report.charts.alt_text import in_words

if TYPE_CHECKING:
    from jinja2 import Environment
    from plotly.graph_objects import Figure

_PACKAGE = Path(__file__).parents[1]
_WIDE = ("weight", "Branch points", "Learned tree", "Gate", "Probability", "Covariance", "Dendrogram", "Traces")
MOST_COLUMNS = 9  # of a table; more are split over several tables, which fit a window and paper
SMALL_PAGE, PAGE = 10, 25  # rows of a table that are shown at once


@dataclass(frozen=True)
class Drawing:
    """Figure with its place on a page; `words` describe it for readers who do not see it."""

    place: str
    title: str
    what: str
    words: str
    source: Markup
    wide: bool


def drawing(section: str, title: str, explanation: str, figure: Figure, *, wide: bool | None = None) -> Drawing:
    """Return a figure as a drawing of a page.

    Its JSON has no "<", so that it cannot end the script element it stands in.

    Args:
        section: The id of its element on the page.
        title: Its title.
        explanation: Its explanation.
        figure: The figure itself.
        wide: Whether it takes the page's whole width; None: as its title says.
    """
    text: str = figure.to_json()
    shown = Markup(text.replace("<", "\\u003c"))
    by_title = any(word in title for word in _WIDE)
    return Drawing(section, title, explanation, in_words(json.loads(text)), shown, by_title if wide is None else wide)


@dataclass(frozen=True)
class ColumnHeader:
    """The head of a column.

    Attributes:
        first: The direction that a first click sorts in, so that the best come first.
        now: The direction that the rows stand in at first.
    """

    text: str
    help: str = ""
    first: str = "ascending"
    now: str = ""
    number: bool = True


@dataclass(frozen=True)
class TableCell:
    """Cell of a table; `key` is the value that sorting goes by, "" for a missing one."""

    text: str
    key: str
    kind: str = ""
    pill: str = ""


@dataclass(frozen=True)
class TableRow:
    """Row of a table; `method` is the name that a filter of methods goes by, "" where the row has none."""

    method: str
    name: str
    role: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True)
class Grid:
    """Table as a template draws it; its first column is each row's name."""

    caption: str
    label: str  # for readers who do not see where the table stands
    heads: tuple[ColumnHeader, ...]
    rows: tuple[TableRow, ...]
    what: str = ""
    after: str = ""
    page: int = PAGE


_NUMBER = re.compile(r"[−+-]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


def word_grid(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], explanation: str = "", after: str = ""
) -> Grid:
    """Return a table of texts; columns of numbers are sorted as numbers, largest first.

    Args:
        caption: Its title.
        header: The header of each column.
        rows: The texts of each row, its name first.
        explanation: The explanation beside the title.
        after: The text below the table.
    """
    numeric = [sum(_key(row[column]) is not None for row in rows) * 2 > len(rows) for column in range(len(header))]

    heads = tuple(
        ColumnHeader(text, first="descending" if number else "ascending", number=number)
        for text, number in zip(header, numeric, strict=True)
    )

    grid_rows = []
    for row in rows:
        cells = tuple(
            TableCell(text, (_key(text) or "") if number else text)
            for text, number in list(zip(row, numeric, strict=True))[1:]
        )
        grid_rows.append(TableRow(row[0], row[0], "", cells))

    return Grid(caption, caption, heads, tuple(grid_rows), explanation, after)


def is_number(text: str) -> bool:
    """Return whether a text begins with a number."""
    return _NUMBER.match(text) is not None


def _key(text: str) -> str | None:
    number_match = _NUMBER.match(text)
    return None if number_match is None else number_match[0].replace(",", "").replace("−", "-").removeprefix("+")


def rendered(template: str, **parts: Any) -> str:
    """Render a page with its style, its script and the library that draws its charts inside."""
    context = {
        "style": _inside("page.css"),
        "script": _inside("page.js"),
        "plotly": _plotly(),
        "live": "",
        "waiting": False,
        "methods": (),
        **parts,
    }

    return _environment().get_template(template).render(context)


def fragment(template: str, **parts: Any) -> str:
    """Render a part of somebody else's page: no style, no script."""
    return _environment().get_template(template).render(parts)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(_PACKAGE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _inside(name: str) -> Markup:
    return Markup((_PACKAGE / name).read_text(encoding="utf-8"))


@functools.cache
def _plotly() -> Markup:
    """Return plotly compressed, 2 MB instead of 5: browsers inflate it when the first chart comes into view."""
    from plotly.offline import get_plotlyjs

    return Markup(base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode())
