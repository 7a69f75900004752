"""Registry of a report's sections, and what they are made from."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from mtlscale.config import UserError, nearest
from mtlscale.config.registry.components import load_installed
from mtlscale.config.registry.report_parts import ReportPart, parts, register
from mtlscale.records import RunRecord
from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.charts.chart import Chart
from mtlscale.report.charts.colors import LineStyles, page_looks
from mtlscale.report.report_section import ReportSection
from mtlscale.report.stats.frames import newest
from mtlscale.report.tables.table import Table

Make = TypeVar("Make", bound=Callable[..., Iterable[Any]])
REPORT, HTML = "report", "html"  # leaderboard.md and the files of charts; the page
FORMATS = (REPORT, HTML, "terminal", "markdown", "latex", "json", "csv")
OWN = 900  # order of sections that say none: behind the shipped ones


@dataclass(frozen=True)
class View:
    """What a section sees: the tables by data set, and the newest record of each run."""

    tables: Mapping[str, Table]
    records: Sequence[RunRecord]

    @classmethod
    def of(cls, tables: Mapping[str, Table], records: Iterable[RunRecord]) -> View:
        """Return the view of a leaderboard's tables and of its records, older ones among them."""
        return cls(tables, newest(records))

    @functools.cached_property
    def looks(self) -> LineStyles:
        """The colour and line of each method, as in all charts."""
        return page_looks(self.records, self.tables.values())

    @property
    def baseline(self) -> str | None:
        """The method that Δ is taken to, of the first table that has one."""
        return next((table.baseline for table in self.tables.values() if table.baseline), None)

    @property
    def reference(self) -> str | None:
        """The method that tests compare with, likewise."""
        return next((table.reference for table in self.tables.values() if table.reference), None)


@dataclass(frozen=True)
class _Declared:
    key: str
    title: str
    order: int
    formats: Collection[str]
    make: Callable[[View], Iterable[str | Chart | Sheet | ReportSection]]


def section(
    key: str, *, title: str = "", order: int = OWN, formats: Collection[str] = FORMATS
) -> Callable[[Make], Make]:
    """Register a function `(view) -> texts, charts, tables` as a section; one that yields nothing is left out.

    A function may yield whole sections, too, where their number depends on the records.

    Args:
        key: Its name for `--section`, of letters, digits and underscores.
        title: Its heading.
        order: Its place among the sections.
        formats: The formats that it is in.

    Raises:
        UserError: If the key is no such name, or another section has it.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", key):
        raise UserError(f"section {key!r}: its key should be a name of letters, digits and _")

    def added(make: Make) -> Make:
        register("section", [key], _Declared(key, title or key, order, formats, make), make.__module__)
        return make

    return added


def sections(
    tables: Mapping[str, Table], records: Iterable[RunRecord], form: str, keys: Sequence[str] = ()
) -> list[ReportSection]:
    """Return the sections of a format in their order.

    Args:
        tables: The tables of the leaderboard, by data set.
        records: Its records.
        form: One of `FORMATS`.
        keys: The sections that are asked for by name, which may be of other formats; default: those of the format.

    Raises:
        UserError: If there is no section of that name.
    """
    _load_shipped()
    load_installed()
    plugins = {plugin for table in tables.values() for plugin in table.plugins}
    known = {part.content.key: part for part in parts("section", plugins)}
    for key in keys:
        if key not in known:
            raise UserError(f"--section {key}: there is none; {nearest(key, list(known))}")

    chosen = [known[key] for key in keys] or [part for part in known.values() if form in part.content.formats]
    if not chosen:
        return []
    view = View.of(tables, records)
    return [made for part in sorted(chosen, key=lambda part: part.content.order) for made in _made(part, view)]


def _made(part: ReportPart, view: View) -> Iterator[ReportSection]:
    declared: _Declared = part.content
    yielded: list[str | Chart | Sheet | ReportSection] = []
    try:
        for one in declared.make(view):
            if not isinstance(one, str | Chart | Sheet | ReportSection):
                raise TypeError(f"yields {type(one).__name__}; a section yields texts, Chart, Sheet or ReportSection")
            yielded.append(one)
    except Exception as error:
        if not part.plugin:
            raise
        cause = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}".removesuffix(": ")
        yielded = [f"section {declared.key} of {part.plugin}: {cause}"]

    yield from (one for one in yielded if isinstance(one, ReportSection))
    texts = [one for one in yielded if isinstance(one, str)]
    charts = [one for one in yielded if isinstance(one, Chart)]
    tables = [one for one in yielded if isinstance(one, Sheet)]
    if texts or charts or tables:
        yield ReportSection(title=declared.title, texts=texts, charts=charts, tables=tables, key=declared.key)


@functools.cache
def _load_shipped() -> None:
    package = importlib.import_module(__package__)
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{__package__}.{module.name}")
