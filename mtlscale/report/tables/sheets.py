"""Tables beside those of the data sets: across all data sets, and of every pair of methods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mtlscale.report.formats.latex import floating
from mtlscale.report.formats.markdown import markdown_cell, markdown_rows
from mtlscale.report.formats.terminal import grid
from mtlscale.report.tables.columns import LeaderboardColumn

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from mtlscale.report.overall.overall import Overall
    from mtlscale.report.stats.pairwise import Pairwise


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Table in words, with the numbers behind it and its conclusion."""

    title: str
    names: Sequence[str]
    columns: Sequence[LeaderboardColumn]
    numbers: pd.DataFrame
    sentence: str
    notes: Sequence[str]

    @classmethod
    def across(cls, overall: Overall, notes: Sequence[str] = ()) -> Sheet:
        return cls(
            title=f"All {len(overall.datasets)} data sets",
            names=[str(name) for name in overall.rows.index],
            columns=overall.columns(),
            numbers=overall.rows.reset_index(),
            sentence=overall.sentence,
            notes=(*overall.notes, *notes),
        )

    @classmethod
    def of_pairs(cls, pairwise: Pairwise) -> Sheet:
        return cls(
            title=f"{pairwise.dataset}: every pair",
            names=pairwise.methods,
            columns=pairwise.columns(),
            numbers=pairwise.pairs,
            sentence=f"Difference of {pairwise.description}: row − column; ▲ better, ▼ worse by paired t-tests.",
            notes=pairwise.notes,
        )

    def to_markdown(self) -> str:
        lines = [f"## {markdown_cell(self.title)}", "", markdown_cell(self.sentence), ""]
        lines += [*markdown_rows(self.names, self.columns), ""]
        if self.notes:
            lines += [f"<sub>{markdown_cell('; '.join(self.notes))}.</sub>", ""]
        return "\n".join(lines)

    def to_latex(self) -> str:
        below = "".join(f"{note}. " for note in self.notes).strip()
        return "\n".join([*floating(self.names, self.columns, f"{self.title}: {self.sentence}", below), ""])

    def to_rich(self) -> Iterator[RenderableType]:
        from rich.text import Text

        yield Text(self.title, style="bold")
        yield grid(self.names, self.columns)
        yield Text(f"\n{self.sentence}", style="bold")
        if self.notes:
            yield Text(f"{'; '.join(self.notes)}.\n", style="dim")
