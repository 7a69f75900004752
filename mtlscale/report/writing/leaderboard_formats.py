"""The formats of a leaderboard that the command line offers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import UserError
from mtlscale.report.cells.sheet import Sheet
from mtlscale.report.merge_experiments import MergedRecords

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from mtlscale.report.leaderboard import Leaderboard
    from mtlscale.report.report_section import ReportSection

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
class DisplayedLeaderboard:
    """Leaderboard to show, with what is shown beside it."""

    merged: MergedRecords
    board: Leaderboard
    title: str
    overall: Sheet | None = None
    overall_asked: bool = False  # whether a terminal shows its table at first, too
    pairs: Mapping[str, Sheet] = field(default_factory=dict)  # by data set
    columns: Sequence[str] = ()  # those of the data sets' tables that are shown; default: as many as fit
    label: str = ""  # of LaTeX's tables
    only: Sequence[str] = ()  # keys of the sections that are shown alone; default: everything of the format

    def sections(self, form: str) -> list[ReportSection]:
        """Return the sections of a format."""
        from mtlscale.report.sections.registry import sections

        return sections(self.board.tables, self.merged.records_shown(with_compared=True), form, self.only)

    def text(self, form: str) -> str:
        """Return the text in any format but the terminal's."""
        if form == "json":
            from mtlscale.report.writing.json_text import json_text

            tables, gathered = list(self.board.tables.values()), self.merged
            parts = (self.overall, self.pairs, self.sections(form))
            return json_text(tables if not self.only else [], gathered.records_shown(), gathered.sources, *parts)

        if form == "html":
            from mtlscale.report.writing.html import page

            # The figures of the page need the rows that others are compared with.
            return page(
                self.merged.records_shown(with_compared=True),
                self.merged.leaderboard(with_compared=True),
                self.title,
                epochs=self.merged.epochs,
                description=" ".join(self._descriptions),
            )

        if form == "csv":
            return self._csv()
        if form == "latex":
            return self._latex()

        from mtlscale.report.formats.markdown import markdown_part, markdown_section

        section, of_sections = partial(markdown_section, level=2), map(markdown_part, self.sections(form))
        if self.only:
            return "\n".join(of_sections)
        overall = [] if self.overall is None else [section(self.overall)]
        board = list(map(section, self._chosen())) if self.columns else [self.board.to_markdown()]
        return "\n".join([*overall, *board, *map(section, self.pairs.values()), *of_sections])

    def _latex(self) -> str:
        from mtlscale.report.formats.latex import latex
        from mtlscale.report.sheets.dataset import sheets
        from mtlscale.report.tables.caveats import failures

        if self.only:
            return latex([], (), self.label, self.sections("latex"))
        tables = self.board.tables.values()
        shown = (
            self._chosen() if self.columns else [sheet for table in tables for sheet in sheets(table, details=False)]
        )
        overall = [] if self.overall is None else [self.overall]
        unfinished = [failure for table in tables for failure in failures(table)]
        return latex([*overall, *shown, *self.pairs.values()], unfinished, self.label, self.sections("latex"))

    def _chosen(self) -> list[Sheet]:
        from mtlscale.report.sheets.chosen_columns import chosen

        return chosen(self.board.tables, self.columns)

    @property
    def _descriptions(self) -> list[str]:
        """The description of the experiment, where there is one experiment."""
        descriptions = dict.fromkeys(source.description for source in self.merged.sources)
        names = {source.name for source in self.merged.sources}
        return [text for text in descriptions if text] if len(names) == 1 else []

    def to_rich(self, *, wide: bool = False) -> Iterator[RenderableType]:
        """Yield what a terminal shows: the first screen and what was asked for beside it; `wide` shows all."""
        from rich.text import Text

        from mtlscale.report.formats.terminal import print_section, print_sheet

        if self.only:
            for section in self.sections("terminal"):
                yield from print_section(section)
            return
        whole = wide or bool(self.columns)
        if whole:
            yield from (Text(f"{text}\n") for text in self._descriptions)
        if self.overall is not None and (whole or self.overall_asked):
            yield from print_sheet(self.overall)

        if self.columns:
            for sheet in self._chosen():
                yield from print_sheet(sheet)
        else:
            if self.overall is not None and not (whole or self.overall_asked):
                yield Text(f"{self.overall.text}\n", style="bold")
            yield self.board.to_rich(wide=wide)
        for sheet in self.pairs.values():
            yield from print_sheet(sheet)
        for section in self.sections("terminal"):
            yield from print_section(section)

    def _csv(self) -> str:
        """Return one table: of every pair, or across data sets, where that is asked for, else the leaderboard."""
        import pandas as pd

        if self.only:
            tables = [_numbers(sheet) for section in self.sections("csv") for sheet in section.tables]
            if len(tables) != 1:
                raise UserError(f"--section: CSV is one table, these sections have {len(tables)}; choose json")
            return tables[0].to_csv(index=False)
        if self.pairs:
            frames = {dataset: sheet.numbers for dataset, sheet in self.pairs.items()}
            return pd.concat(frames, names=["dataset"]).reset_index("dataset").to_csv(index=False)
        if self.overall is not None and self.overall.numbers is not None:
            return self.overall.numbers.to_csv(index=False)
        return self.board.to_csv()


def _numbers(sheet: Sheet) -> pd.DataFrame:
    """Return a table with all its digits, else its texts."""
    import pandas as pd

    return pd.DataFrame(sheet.texts, columns=list(sheet.header)) if sheet.numbers is None else sheet.numbers
