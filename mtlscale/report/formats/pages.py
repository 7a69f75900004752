"""Building blocks of all pages: templates, one style, one script, and charts drawn when they come into view.

Everything a user or a library has named is escaped by the templates; nothing is fetched from anywhere.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
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
