"""Columns of texts that are numbers or dates in some notation, decided over all rows of a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from mtlscale.config import UserError
from mtlscale.data.tables.arrow_types import by_text, is_text
from mtlscale.data.tables.missing_words import cut
from mtlscale.data.tables.notations import POINT, Question, date_in, is_number, number_in, question_of
from mtlscale.data.tables.raw_files import Problems
from mtlscale.data.tables.table_format import TableFormat

Use = Literal["input", "target", "number", "number or date"]  # what a column is needed for
FEW_VALUES = 20  # different values, at most, of a target that may be classes
_MOSTLY = 0.9  # share of cells that are numbers in a column of numbers with some texts
_LOOKED_AT = 1000  # rows after which a column is plainly one of texts
_LISTED = 6  # columns in a line
_SAMPLE = 200  # texts by which a notation is told

Cells = tuple[tuple[int, str], ...]  # rows and their texts


@dataclass(frozen=True)
class TextSummary:
    """What is known of some rows of a column of texts.

    Attributes:
        count: Number of cells with a letter.
        not_numbers: Those that are no numbers; None: plainly most of them.
        unclear: Those that are numbers only if a comma separates thousands, as in 1,234.
        thousands: Whether commas do so in another cell, as in 1,234.5.
        not_dates: Those that are no dates; None: plainly most of them.
        values: Different texts, cut off where they are many.
        sample: Some of them, in the order of the rows.
        infinite: Those that are infinite numbers.
    """

    count: int
    not_numbers: Cells | None
    unclear: Cells
    thousands: bool
    not_dates: Cells | None
    values: frozenset[str]
    sample: tuple[str, ...]
    infinite: Cells = ()

    def merged(self, other: TextSummary) -> TextSummary:
        """Return the summary of these rows and later ones."""
        return TextSummary(
            self.count + other.count,
            _joined(self.not_numbers, other.not_numbers),
            self.unclear + other.unclear,
            self.thousands or other.thousands,
            _joined(self.not_dates, other.not_dates),
            cut(self.values | other.values),
            tuple(dict.fromkeys(self.sample + other.sample))[:_SAMPLE],
            self.infinite + other.infinite,
        )

    def moved(self, first: int) -> TextSummary:
        """Return the summary with the number of its first row added to the numbers of rows."""
        parts: dict[str, Any] = {
            name: tuple((first + row, text) for row, text in cells)
            for name in ("not_numbers", "unclear", "not_dates", "infinite")
            if (cells := getattr(self, name)) is not None
        }
        return replace(self, **parts)


@dataclass(frozen=True)
class Reading:
    """How a column of texts is read.

    Attributes:
        kind: `number` or `date`; "" leaves it as it is.
        wrong: The cells that are none.
        decimal: The decimal mark of the numbers.
        question: What the column looks like, if a setting has to say it.
    """

    kind: Literal["", "number", "date"] = ""
    wrong: Cells = ()
    decimal: str = ""
    question: Question | None = None


def summary_of(column: pa.ChunkedArray, form: TableFormat, numbers: Sequence[int] | None = None) -> TextSummary:
    """Return the summary of a column, or of a part of it.

    Args:
        column: Texts; a part may have no cell or be numbers or dates, where those of other parts are texts.
        numbers: The numbers of its rows; default: 0, 1, …
    """
    if not is_text(column.type):
        kind, empty = column.type, pa.types.is_null(column.type)
        is_date = pa.types.is_date(kind) or pa.types.is_timestamp(kind)
        numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        present = len(column) - column.null_count
        no_number, no_date = () if numeric or empty else None, () if is_date or empty else None
        return TextSummary(present, no_number, (), False, no_date, frozenset(), ())

    different = dict.fromkeys(text for text in pc.unique(column).to_pylist() if text is not None and text.strip())
    present = column.filter(pc.is_in(column, pa.array(different, column.type)))
    first = present[:_LOOKED_AT].to_pylist()
    as_numbers = _results(first, different, partial(number_in, decimal=form.decimal or POINT))
    as_dates = None
    if as_numbers is None:
        as_dates = _results(first, different, partial(date_in, formats=form.dates or ()))

    cells: list[tuple[int, str]] = []  # of a column that is plainly one of texts nobody asks for them
    if as_numbers is not None or as_dates is not None:
        cells = [(numbers[row] if numbers is not None else row, text)
                 for row, text in enumerate(column.to_pylist()) if text in different]  # fmt: skip

    unclear: Cells = ()
    thousands = False
    infinite: Cells = ()
    not_numbers: Cells | None = None
    if as_numbers is not None:
        commas = {text for text in as_numbers if not form.decimal and number_in(text) is None}
        unclear = tuple(cell for cell in cells if cell[1] in commas)
        thousands = not form.decimal and any("," in text and text not in commas for text in as_numbers)
        not_numbers = tuple(cell for cell in cells if cell[1] not in as_numbers)
        infinite = tuple(cell for cell in cells if math.isinf(as_numbers.get(cell[1], 0.0)))
    not_dates: Cells | None = None if as_dates is None else tuple(cell for cell in cells if cell[1] not in as_dates)
    values, sample = cut(frozenset(different)), tuple(different)[:_SAMPLE]
    return TextSummary(len(present), not_numbers, unclear, thousands, not_dates, values, sample, infinite)


def reading_of(summary: TextSummary, use: Use, form: TableFormat) -> Reading:
    """Return how a column of texts is read, by all of its rows.

    Args:
        use: What the column is needed for.
    """
    decimal = form.decimal
    if summary.not_numbers is not None:
        wrong = summary.not_numbers
        if summary.thousands:
            decimal = POINT
        else:
            wrong = tuple(sorted((*wrong, *summary.unclear)))
        may_be_classes = use == "target" and wrong and len(summary.values) <= FEW_VALUES
        if mostly(len(wrong), summary.count) and not may_be_classes:
            return Reading("number", wrong, decimal)
    if summary.not_dates is not None and use != "number" and mostly(len(summary.not_dates), summary.count):
        return Reading("date", summary.not_dates)

    question = question_of(summary.sample)
    if question is not None and question.setting:
        answered = form.decimal != "" if question.setting.startswith("decimal") else form.dates is not None
        question = None if answered else question
    return Reading(question=question)


def mostly(wrong: int, count: int) -> bool:
    """Return whether a column with so many texts, some of which are no numbers, is one of numbers."""
    return bool(count) and wrong <= (1 - _MOSTLY) * count and wrong < count


def converted(column: pa.ChunkedArray, reading: Reading, form: TableFormat) -> pa.ChunkedArray:
    """Return a column of texts as it is read; a cell that cannot be is empty."""
    if reading.kind == "" or not is_text(column.type):
        return column
    if reading.kind == "date":
        return by_text(column, lambda text: date_in(text, form.dates or ()), pa.timestamp("us"))
    return by_text(column, lambda text: number_in(text, reading.decimal), pa.float64())


def read_texts(
    table: pa.Table,
    uses: Mapping[str, Use],
    form: TableFormat,
    rows: Sequence[str],
    problems: Problems,
    questions: dict[str, Question],
) -> pa.Table:
    """Return the table with the texts of some columns as the numbers or dates that they are.

    Args:
        uses: Column -> what it is needed for.
        rows: The name of each row in messages.
        problems: Cells that are none, extended here.
        questions: Column -> what is to be asked about it, extended here.
    """
    for name, use in uses.items():
        column = table[name]
        if not is_text(column.type):
            continue
        reading = reading_of(summary_of(column, form), use, form)
        if reading.question is not None:
            questions[name] = reading.question
        if reading.kind:
            problems += [(rows[row], wrong_cell(name, text, reading.kind)) for row, text in reading.wrong]
            position = table.column_names.index(name)
            table = table.set_column(position, name, converted(column, reading, form))
    return table


def wrong_cell(name: str, text: str, kind: str) -> str:
    """Return the problem of a row with a text in a column of numbers or dates."""
    mend = "name the column in `categorical`, or the text in `missing`"
    if kind == "number" and is_number(text):
        mend = "set `decimal` to the mark before its decimals, , or ."
    return f"has {text[:40]!r} in {name}, whose other cells are {kind}s; {mend}"


def question_lines(questions: Mapping[str, Question]) -> Iterator[str]:
    """Yield a line for the columns that look alike."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, question in questions.items():
        alike.setdefault((question.what, question.mend), []).append(name)
    for (what, mend), names in alike.items():
        shown = ", ".join(map(repr, names[:_LISTED])) + (f" and {len(names) - _LISTED} more" * (len(names) > _LISTED))
        subject = f"column {shown} looks" if len(names) == 1 else f"columns {shown} look"
        yield f"{subject} like {what} ({questions[names[0]].example!r}); {mend}"


def refuse_questions(pipeline: str, questions: Mapping[str, Question], otherwise: str) -> None:
    """Raise `UserError` for a column that a setting would read; `otherwise` says where to name it if it is none."""
    for name, question in questions.items():
        if question.setting:
            seen = f"column {name!r} looks like {question.looks_like}"
            raise UserError(f"{pipeline}: {seen}; {question.mend}, or name it in {otherwise}")


def _results(first: Sequence[str], different: Iterable[str], read: Callable[[str], Any]) -> dict[str, Any] | None:
    """Return text -> what it is read as, of those that can be; None if the first cells are plainly of another kind."""
    if 2 * sum(read(text) is not None for text in first) < len(first):
        return None
    return {text: value for text in different if (value := read(text)) is not None}


def _joined(one: Cells | None, other: Cells | None) -> Cells | None:
    return None if one is None or other is None else one + other
