"""Building blocks of all pages: templates, one style, one script, and charts drawn when they come into view.

Everything a user or a library has named is escaped by the templates; nothing is fetched from anywhere.
"""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from mtlscale.report.charts.alt_text import described
from mtlscale.report.charts.chart import Chart
from mtlscale.report.charts.vega import specification

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = Path(__file__).parents[1]
_WIDE = ("weight", "Branch points", "Learned tree", "Gate", "Probability", "Covariance", "Dendrogram", "Traces")


@dataclass(frozen=True)
class Drawing:
    """Chart with the id of its element on a page; `wide`: whether it takes the whole width, None as its title says."""

    place: str
    chart: Chart
    wide: bool | None = None

    @property
    def is_wide(self) -> bool:
        return any(word in self.chart.title for word in _WIDE) if self.wide is None else self.wide

    @property
    def words(self) -> str:
        """The description for readers who do not see the chart."""
        return described(self.chart)

    @property
    def source(self) -> Markup:
        """The JSON without "<", so that it cannot end the script element it stands in."""
        text = json.dumps(specification(self.chart), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return Markup(text.replace("<", "\\u003c"))


def drawings(place: str, charts: Iterable[Chart], *, wide: bool | None = None) -> list[Drawing]:
    """Return charts as drawings whose ids are numbered from 0."""
    return [Drawing(f"{place}-{number}", chart, wide) for number, chart in enumerate(charts)]


def rendered(template: str, **parts: Any) -> str:
    """Render a page with its style, its script and the library that draws its charts inside."""
    context = {
        "style": _inside("page.css"),
        "script": _inside("page.js"),
        "vega": _vega(),
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
def _vega() -> Markup:
    """Return Vega compressed, 0.4 MB instead of 0.9: browsers inflate it when the first chart comes into view."""
    from vl_convert import javascript_bundle

    code = f"(() => {{{javascript_bundle('window.vegaEmbed = vegaEmbed;')}}})();"  # keeps its other names to itself
    return Markup(base64.b64encode(gzip.compress(code.encode(), 9, mtime=0)).decode())
