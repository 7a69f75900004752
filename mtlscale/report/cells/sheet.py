"""The one shape of a table: columns of cells with a title, notes and a legend. The other modules here draw it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from mtlscale.records import NEAR_ZERO, ROUNDING
from mtlscale.report.cells.number_format import EMPTY, signed
from mtlscale.report.stats.ties import tied

if TYPE_CHECKING:
    import pandas as pd

Block = Literal["quality", "tasks", "cost"]
PAGE = 25  # rows of a table that a page shows at once
_NUMBER = re.compile(r"[−+-]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?")


class TableCell(NamedTuple):
    """Text of a table with the value that sorting goes by.

    Attributes:
        mark: Words, of which every format shows what it can: best, gain, loss, far.
        badge: What pages set off: the kind of a verdict, in a name the role of its row.
    """

    text: str
    value: float | str | None = None
    mark: str = ""
    badge: str = ""

    @property
    def key(self) -> str:
        """The value as a text, "" for a missing one."""
        if isinstance(self.value, str):
            return self.value
        return "" if self.value is None or math.isnan(self.value) else f"{self.value:.10g}"


@dataclass(frozen=True, kw_only=True)
class Column:
    """Column of a table, with a cell per row."""

    header: str
    cells: Sequence[TableCell]
    help: str = ""
    name: str = ""  # of the numbers that it shows; the header may differ
    block: Block = "quality"
    higher: bool | None = None  # whether more is better, None where neither is
    right: bool = True  # whether to align right, for numbers
    prose: bool = False  # whether to wrap between words where there is little room
    tested: bool = False  # whether the numbers have a test against the reference
    of_test: bool = False  # whether it says how sure a difference is, or over how many runs
    detail: bool = False  # whether a narrow terminal may leave it out
    sorts: bool = False  # whether the rows stand in its order

    @cached_property
    def texts(self) -> list[str]:
        return [cell.text for cell in self.cells]

    @cached_property
    def numeric(self) -> bool:
        """Whether most of its texts are numbers."""
        shown = [text for text in self.texts if text != EMPTY]
        return sum(_NUMBER.match(text) is not None for text in shown) * 2 > len(shown)

    @property
    def best_first(self) -> str:
        """The order that shows the best first."""
        return "descending" if self.higher else "ascending"

    def marked(self, mark: str) -> frozenset[int]:
        """Return the rows with a mark."""
        return frozenset(row for row, cell in enumerate(self.cells) if mark in cell.mark.split())


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Table of texts, the first columns of which name its rows."""

    columns: Sequence[Column]
    title: str = ""
    text: str = ""  # its conclusion or explanation
    notes: Sequence[str] = ()
    legend: str = ""  # in place of notes
    label: str = ""  # for readers who do not see where it stands, where that is not the title
    caption: str = ""  # what it holds, in a line, where title and text do not say that
    key: str = ""  # what tells it from the other tables of a leaderboard, in words
    names: int = 1  # the number of columns with names
    page: int = PAGE  # rows that a page shows at once
    blocks: Sequence[str] = ()  # captions of quality, tasks and cost, where formats arrange its columns by these
    width: int | None = None  # the most that a terminal gives it; None: as much as there is
    numbers: pd.DataFrame | None = None  # all digits

    @property
    def header(self) -> tuple[str, ...]:
        return tuple(column.header for column in self.columns)

    @property
    def texts(self) -> tuple[tuple[str, ...], ...]:
        """The texts of each row."""
        return tuple(tuple(cell.text for cell in row) for row in self.rows)

    @property
    def rows(self) -> list[tuple[TableCell, ...]]:
        return list(zip(*(column.cells for column in self.columns), strict=True))

    @property
    def below(self) -> str:
        """The text below the table."""
        return self.legend or (f"{'; '.join(self.notes)}." if self.notes else "")


def method_column(methods: Iterable[object], texts: Sequence[str] = (), roles: Sequence[str] = ()) -> Column:
    """Return the column of the rows' names; `texts` may differ from what a filter of methods goes by."""
    labels = [str(method) for method in methods]
    roles = roles or [""] * len(labels)
    cells = [
        TableCell(text, label, badge=role) for text, label, role in zip(texts or labels, labels, roles, strict=True)
    ]
    return Column(header="method", help="as the experiment names it", cells=cells, right=False)


def text_column(header: str, texts: Sequence[str], marks: Sequence[str] = (), **settings: Any) -> Column:
    """Return a column of texts; numbers among them are sorted as numbers, largest first."""
    cells = [TableCell(text, text, mark) for text, mark in zip(texts, marks or [""] * len(texts), strict=True)]
    column = Column(header=header, cells=cells, **{"right": False, **settings})
    if not column.numeric:
        return column
    return replace(column, cells=[cell._replace(value=_parsed(cell.text)) for cell in cells], higher=True)


def text_sheet(title: str, text: str, header: Sequence[str], rows: Sequence[Sequence[str]], **settings: Any) -> Sheet:
    """Return a table of texts."""
    columns = [text_column(name, [row[index] for row in rows]) for index, name in enumerate(header)]
    return Sheet(title=title, text=text, columns=columns, **settings)


def number_column(
    header: str,
    values: pd.Series[float],
    form: str,
    widths: pd.Series[float] | None = None,
    *,
    emphasis: bool = True,
    **settings: Any,
) -> Column:
    """Return a column of numbers.

    Args:
        header: The header.
        values: The numbers, NaN where there is none.
        form: The format of a number.
        widths: Half the intervals of the numbers.
        emphasis: Whether the best number is marked, if one direction is better.
        settings: Other attributes of the column.
    """
    width_form = form.lstrip("+,")
    texts = [EMPTY if np.isnan(value) else signed(value, form) for value in values]
    if widths is not None:
        pairs = zip(texts, widths, strict=True)
        texts = [text if np.isnan(width) else f"{text} ± {width:{width_form}}" for text, width in pairs]

    best = _best(values, settings.get("higher") if emphasis else None)
    marks = ["best" if math.isclose(value, best, rel_tol=ROUNDING, abs_tol=NEAR_ZERO) else "" for value in values]
    return Column(header=header, cells=list(map(TableCell, texts, values.tolist(), marks)), **settings)


def _best(values: pd.Series[float], higher: bool | None) -> float:
    if higher is None or tied(values.dropna()).nunique() < 2:
        return math.nan  # of one value, or of equal ones, none is best
    return float(values.max() if higher else values.min())


def _parsed(text: str) -> str:
    """Return the number that a text begins with as Python writes it, "" for none."""
    number = _NUMBER.match(text)
    return "" if number is None else number[0].replace(",", "").replace("−", "-").removeprefix("+")
