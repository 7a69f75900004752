"""A report in one of its formats: the sections that a format has, rendered by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import UserError
from mtlscale.report.report_section import CSV, FIRST, HTML, JSON, LATEX, WIDE, ReportSection
from mtlscale.report.sections.registry import View, sections
from mtlscale.report.stats.curves import EpochReader, no_epochs, with_epochs

if TYPE_CHECKING:
    from mtlscale.report.formats.terminal import Printed

FORMATS = ("terminal", "markdown", "csv", "json", "latex", "html")
_ALIASES = {"table": "terminal", "md": "markdown", "tex": "latex"}
_SUFFIXES = {
    ".txt": "terminal",
    ".md": "markdown",
    ".csv": "csv",
    ".json": "json",
    ".tex": "latex",
    ".html": "html",
    ".htm": "html",
}


def format_of(requested: str | None, output: Path | None) -> str:
    """Return the format that is asked for, else that of the file's suffix, else the terminal's.

    Raises:
        UserError: If the format or the suffix is not known.
    """
    if requested is None:
        if output is None:
            return "terminal"
        if (suffix_format := _SUFFIXES.get(output.suffix.lower())) is None:
            raise UserError(f"--output {output}: no format ends in {output.suffix!r}; add --format {'|'.join(FORMATS)}")
        return suffix_format

    name = _ALIASES.get(requested, requested)
    if name not in FORMATS:
        raise UserError(f"--format {requested}: choose {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    return name


@dataclass(frozen=True, kw_only=True)
class Report(View):
    """What sections see, and what the report is called that they are of.

    Attributes:
        title: The name of the experiment, or of all.
        descriptions: The sentences of the experiment, above everything.
        label: The label of LaTeX's tables.
        only: The keys of the sections that are shown alone; default: those of the format.
        sources: The name, the place and the number of runs of each experiment, for JSON.
        epochs: The reader of the epochs of records that lack them.
        live: The state of the results that a page shows, for a page that asks its server for news.
    """

    title: str = ""
    descriptions: Sequence[str] = ()
    label: str = ""
    only: Sequence[str] = ()
    sources: Sequence[tuple[str, str, int]] = ()
    epochs: EpochReader = no_epochs
    live: str = ""

    def text(self, form: str) -> str:
        """Return the text in any format but the terminal's."""
        if form == HTML:
            return self._page()
        if form == CSV:
            return self._csv()
        text_sections = sections(self, form, self.only)
        if form == JSON:
            from mtlscale.report.formats.json_text import json_text

            return json_text(text_sections, self.sources)
        if form == LATEX:
            from mtlscale.report.formats.latex import latex

            return latex(text_sections, self.label)
        from mtlscale.report.formats.markdown import markdown

        return markdown(text_sections)

    def printed(self, *, wide: bool = False) -> list[Printed]:
        """Return what a terminal shows: the first screen and what was asked for beside it; `wide` shows all."""
        from mtlscale.report.formats.terminal import Printed

        wide = wide or bool(self.columns)
        above = [ReportSection(texts=self.descriptions)] if wide and not self.only else []
        return [Printed(section) for section in (*above, *sections(self, WIDE if wide else FIRST, self.only))]

    def with_epochs(self) -> Report:
        """Return the report with the epochs that its curves are drawn from."""
        from mtlscale.report.sections.figures import drawn_rows

        rows = {dataset: drawn_rows(table) for dataset, table in self.tables.items()}
        return replace(self, records=with_epochs(self.records, rows, self.epochs), epochs=no_epochs)

    def _page(self) -> str:
        from mtlscale.report.formats.html import html

        page_sections = sections(self.with_epochs(), HTML)
        methods = list(dict.fromkeys(record.method for record in self.records))
        return html(page_sections, self.title, methods, " ".join(self.descriptions), self.live)

    def _csv(self) -> str:
        """Return the one table that is asked for: of every pair, or across data sets, else the rows of all tables."""
        import pandas as pd

        sheets = [sheet for section in sections(self, CSV, self.only) for sheet in section.tables]
        if self.only and len(sheets) != 1:
            raise UserError(f"--section: CSV is one table, these sections have {len(sheets)}; choose json")
        sheet = sheets[0]
        numbers = pd.DataFrame(sheet.texts, columns=list(sheet.header)) if sheet.numbers is None else sheet.numbers
        return numbers.to_csv(index=False)
