"""Registry of a report's sections, and what they are made from."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from mtlscale.config import UserError, nearest
from mtlscale.config.registry.components import load_installed
from mtlscale.config.registry.report_parts import ReportPart, failed, load_folder, parts, register
from mtlscale.records import RunRecord
from mtlscale.report.cells.sheet import Column, Sheet
from mtlscale.report.charts.chart import Chart
from mtlscale.report.charts.colors import LineStyles, page_looks
from mtlscale.report.columns.shown import columns
from mtlscale.report.overall.multi_dataset import Overall
from mtlscale.report.report_section import FIRST, FORMATS, WIDE, ReportSection
from mtlscale.report.stats.frames import by_dataset
from mtlscale.report.tables.published import PublishedTable
from mtlscale.report.tables.table import Table

Make = TypeVar("Make", bound=Callable[..., Iterable[Any]])
OWN = 900  # order of sections that say none: behind the shipped ones


@dataclass(frozen=True, kw_only=True)
class View:
    """What a section sees.

    Attributes:
        tables: The tables by data set.
        records: The newest record of each run, one data set after the other.
        form: The format that sections are made for.
        published: Data set -> what is published on it.
        overall: The comparison across data sets, where it is asked for.
        overall_notes: What else to know about that.
        overall_asked: Whether a terminal shows its table at first, too.
        pairwise: Whether every pair of methods is compared.
        columns: The columns that are asked for; default: as many as fit.
    """

    tables: Mapping[str, Table]
    records: Sequence[RunRecord] = ()
    form: str = ""
    published: Mapping[str, Sequence[PublishedTable]] = field(default_factory=dict)
    overall: Overall | None = None
    overall_notes: Sequence[str] = ()
    overall_asked: bool = False
    pairwise: bool = False
    columns: Sequence[str] = ()

    @functools.cached_property
    def runs(self) -> dict[str, list[RunRecord]]:
        """The records by data set."""
        return by_dataset(self.records)

    @functools.cached_property
    def shown(self) -> dict[str, list[Column]]:
        """Every column of each table that has something to show."""
        return {dataset: columns(table) for dataset, table in self.tables.items()}

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


def sections(view: View, form: str, keys: Sequence[str] = ()) -> list[ReportSection]:
    """Return the sections of a format in their order; those of a data set stand together.

    Args:
        view: What they see.
        form: One of `FORMATS`, or `FIRST` or `WIDE` for a terminal.
        keys: The sections that are asked for by name, which may be of other formats; default: those of the format.

    Raises:
        UserError: If there is no section of that name.
    """
    load_folder(__package__)
    load_installed()
    plugins = {plugin for table in view.tables.values() for plugin in table.plugins}
    known = {part.content.key: part for part in parts("section", plugins)}
    for key in keys:
        if key not in known:
            raise UserError(f"--section {key}: there is none; {nearest(key, list(known))}")

    forms = {form, "terminal"} if form in (FIRST, WIDE) else {form}
    chosen = [known[key] for key in keys] or [part for part in known.values() if forms & {*part.content.formats}]
    chosen = [part for part in chosen if view.records or not part.plugin]  # a table alone has no sections of plugins
    view, positions = replace(view, form=form), {dataset: number for number, dataset in enumerate(view.tables)}

    def place(pair: tuple[int, ReportSection]) -> tuple[int, int, int]:
        order, section = pair
        return order // 10, positions.get(section.dataset, len(positions)), order

    placed = [(part.content.order, section) for part in chosen for section in _made(part, view)]
    return [section for _, section in sorted(placed, key=place)]


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
        yielded = [failed(f"section {declared.key}", part.plugin, error)]

    yield from (replace(one, key=one.key or declared.key) for one in yielded if isinstance(one, ReportSection))
    texts = [one for one in yielded if isinstance(one, str)]
    charts = [one for one in yielded if isinstance(one, Chart)]
    tables = [one for one in yielded if isinstance(one, Sheet)]
    if texts or charts or tables:
        yield ReportSection(title=declared.title, texts=texts, charts=charts, tables=tables, key=declared.key)
