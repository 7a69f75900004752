"""The formats of a leaderboard that the command line offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mtlscale.config import UserError
from mtlscale.report.tables.merge_experiments import MergedRecords
from mtlscale.report.tables.sheets import Sheet

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mtlscale.report.tables.leaderboard import Leaderboard

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
    pairs: Mapping[str, Sheet] = field(default_factory=dict)  # by data set

    def text(self, form: str) -> str:
        """Return the text in any format but the terminal's."""
        if form == "json":
            from mtlscale.report.formats.json_text import json_text

            tables, gathered = list(self.board.tables.values()), self.merged
            return json_text(tables, gathered.records_shown(), gathered.sources, self.overall, self.pairs)

        if form == "html":
            from mtlscale.report.formats.html import page

            # The figures of the page need the rows that others are compared with.
            return page(
                self.merged.records_shown(with_compared=True),
                self.merged.leaderboard(with_compared=True),
                self.title,
                description=" ".join(self._descriptions),
            )

        if form == "csv":
            return self._csv()
        if form == "latex":
            return self._latex()

        parts = [] if self.overall is None else [self.overall.to_markdown()]
        return "\n".join([*parts, self.board.to_markdown(), *(sheet.to_markdown() for sheet in self.pairs.values())])

    @property
    def _descriptions(self) -> list[str]:
        """The description of the experiment, where there is one experiment."""
        descriptions = dict.fromkeys(source.description for source in self.merged.sources)
        names = {source.name for source in self.merged.sources}
        return [text for text in descriptions if text] if len(names) == 1 else []

    def to_rich(self, *, wide: bool = False) -> Sequence[RenderableType]:
        from rich.text import Text

        parts: list[RenderableType] = [Text(f"{text}\n") for text in self._descriptions]
        parts += [] if self.overall is None else [*self.overall.to_rich()]
        parts.append(self.board.to_rich(wide=wide))
        return [*parts, *(part for sheet in self.pairs.values() for part in sheet.to_rich())]

    def _csv(self) -> str:
        """Return one table: of every pair, or across data sets, where that is asked for, else the leaderboard."""
        import pandas as pd

        if self.pairs:
            frames = []
            for dataset, sheet in self.pairs.items():
                frame = sheet.numbers.copy()
                frame.insert(0, "dataset", dataset)
                frames.append(frame)
            return pd.concat(frames, ignore_index=True).to_csv(index=False)

        if self.overall is not None:
            return self.overall.numbers.to_csv(index=False)
        return self.board.to_csv()

    def _latex(self) -> str:
        from mtlscale.report.formats.latex import latex, preamble

        parts = [preamble()] if self.overall is None else [preamble(), self.overall.to_latex()]
        parts += [latex(table) for table in self.board.tables.values()]
        return "\n".join([*parts, *(sheet.to_latex() for sheet in self.pairs.values())])
